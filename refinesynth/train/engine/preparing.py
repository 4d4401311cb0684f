"""From settings to tokens and a plan: everything before the weights are loaded."""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from refinesynth.errors import TrainingError
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.conversation import Conversation
from refinesynth.train.data import Reading, read_conversations, split
from refinesynth.train.engine.distributed import Distributed, all_gather_objects
from refinesynth.train.engine.loading import describe_model, load_tokenizer, make_renderer
from refinesynth.train.plan import Plan, Sizes, SourceSizes, compute_settings, make_plan
from refinesynth.train.prepare import Prepared, prepare
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import TokenStore


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """What a training needs besides its model."""

    tokenizer: PreTrainedTokenizerBase
    store: TokenStore
    held_out: TokenStore | None
    plan: Plan
    remarks: tuple[str, ...] = ()
    """What was left out in reading."""


def prepare_training(
    config: TrainConfig, distributed: Distributed, sources: Sequence[Any] | None = None
) -> PreparedTraining:
    """Read and render the data, and plan; every rank does the same by itself. `sources` take the place of
    `config.data`.

    Raises:
        InputError: Data, tokenizer or model cannot be used, or the plan says that it cannot work.
    """
    reading = read_conversations(
        sources or config.data, without_refinement=config.without_refinement, seed=config.seed, form=config.form
    ).open()
    conversations = list(reading) if config.model == SCRATCH else reading
    tokenizer = load_tokenizer(config, conversations)
    renderer = make_renderer(config, tokenizer)
    shape, devices = describe_model(config, tokenizer), distributed.devices()
    means = compute_settings(config, devices, shape)
    training, held_out = split(conversations, config.held_out, config.seed)
    trained = _prepared(training, renderer, config)
    kept_out = _prepared(held_out, renderer, config) if held_out else None
    evaluated = kept_out.store if kept_out is not None and len(kept_out.store) else None
    sizes = Sizes(
        counts=trained.counts,
        held_out=kept_out.counts if kept_out is not None and evaluated is not None else None,
        largest_id=max(_largest(store) for store in (trained.store, evaluated) if store is not None),
        longest=max(_longest(store) for store in (trained.store, evaluated) if store is not None),
        digest=trained.store.digest,
        rendering=renderer.method,
        sources=tuple(_by_source(reading, trained.store, held_out)),
    )
    plan = make_plan(config, sizes=sizes, model=shape, devices=devices, means=means, host=distributed.host(config))
    return PreparedTraining(renderer.tokenizer, trained.store, evaluated, plan, tuple(_remarks(reading)))


def _by_source(reading: Reading, store: TokenStore, held_out: list[Conversation]) -> Iterator[SourceSizes]:
    tokens, trained = Counter[str](), Counter[str]()
    for one in store:
        tokens[one.source] += len(one)
        trained[one.source] += one.trained
    apart = Counter(conversation.source for conversation in held_out)
    for each in reading.taken:
        name = each.name
        read = {"conversations": each.found, "unmarked": each.unmarked, "taken": each.taken, "held_out": apart[name]}
        yield SourceSizes(name, each.weight, **read, tokens=tokens[name], trained_tokens=trained[name])


def _remarks(reading: Reading) -> Iterator[str]:
    for where in reading.torn:
        yield f"{where}: the last line is cut off, as a run that was killed leaves it; it is left out"
    if reading.emptied:
        yield f"{reading.emptied} conversations are left out: without mistakes and the answers to them nothing is left of them"


def agree(*digests: str) -> None:
    """Make sure that all ranks have rendered the same data; called when the process group stands.

    Raises:
        TrainingError: They have not.
    """
    gathered = all_gather_objects(digests)
    if any(each != gathered[0] for each in gathered):
        raise TrainingError(
            f"the ranks have read different data (digests {gathered}); give them the same files and versions of the libraries"
        )


def _prepared(conversations: list[Conversation], renderer: Renderer, config: TrainConfig) -> Prepared:
    return prepare(conversations, renderer, config.max_length, config.over_length)


def _largest(store: TokenStore) -> int:
    return int(store.input_ids.max(initial=0))


def _longest(store: TokenStore) -> int:
    return int(store.lengths.max(initial=0))
