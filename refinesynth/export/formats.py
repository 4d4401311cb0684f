"""Export formats by name, each with its maskings of mistakes."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Protocol, get_args

from pydantic import JsonValue

from refinesynth.actions.calls import tools_of
from refinesynth.chat import render_tool_turns, render_tools, render_turns, to_messages, to_tool_messages
from refinesynth.environments.grounded import share_of_mistakes, turns_before_play
from refinesynth.errors import InputError
from refinesynth.export import chat_shapes
from refinesynth.export.atif import AtifFormat
from refinesynth.export.chat_shapes import ExportRecord, Masking, Shape, conversations, prompt
from refinesynth.export.preferences import PreferenceFormat
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Difficulty, PlayerTurn, Trajectory
from refinesynth.world import check_solvability

Band = Literal["easy", "medium", "hard"]

EASY, MEDIUM = 4, 8
"""Maximum number of actions in the shortest solution of a band; constant, to keep a world's band when a run grows."""


UNSOLVED = "worlds of which no solution was found"


def band_of(difficulty: Difficulty) -> Band:
    """Return the band of a world in a curriculum; an action that can make the goal unreachable adds one level."""
    bands: tuple[Band, ...] = ("easy", "medium", "hard")
    level = (difficulty.steps > EASY) + (difficulty.steps > MEDIUM) + bool(difficulty.losable)
    return bands[min(level, 2)]


@dataclass(frozen=True)
class WorldFormat:
    """One record for each grounded script, or for each trajectory with a play that begins behind its mistake.

    An instance remembers its scripts: use it for one file.
    """

    form: Literal["react", "tools"] = "react"
    start: str = "clean"
    """Beginning of the plays, as for `environments.read_worlds`: `clean`, `mistakes` or `mixed:SHARE`."""
    name: str = "rl"
    reader: str = "reinforcement learning: TRL, verifiers, and others that ask a prompt and reward an answer"
    advice: Mapping[Masking, str] = field(
        default_factory=lambda: {
            Masking.WORLD: "`script` is the world as JSON text: `refinesynth.environments` plays and rewards it, docs/environments.md says how in TRL and verifiers."
        }
    )
    _seen: set[str] = field(default_factory=set[str], repr=False)

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        del masking
        script = trajectory.script
        share = share_of_mistakes(self.start)
        turns = turns_before_play(trajectory, share)
        if script.rulebook is None or (not turns and (share == 1 or script.digest in self._seen)):
            return
        if not turns:
            self._seen.add(script.digest)
        difficulty = trajectory.provenance.difficulty or check_solvability(script).difficulty
        if difficulty is None:
            yield ExportRecord({}, omitted=UNSOLVED)
            return
        messages = render_turns(script, turns) if self.form == "react" else render_tool_turns(script, turns)
        data: dict[str, JsonValue] = {
            "id": trajectory.id,
            "prompt": [*prompt(messages)],
            "script": write_json(script.model_dump(mode="json")).decode(),
            "band": band_of(difficulty),
            "difficulty": difficulty.model_dump(mode="json"),
        }
        if share:
            data["before"] = write_json([turn.model_dump(mode="json") for turn in turns]).decode()
        if self.form == "tools":
            data["tools"] = write_json(render_tools(script)).decode()
        yield ExportRecord(data, 0, 0)


Form = Literal["react", "tools"]
"""Form of a conversation: ReAct text, or tool calls."""

DROPPED = "#correct"
"""Suffix for the id of a conversation without its mistakes."""


@dataclass(frozen=True)
class ChatFormat:
    """Format of chat messages (`chat.to_messages`, or `chat.to_tool_messages` with tool calls).

    Conversations end with their last assistant message, without the closing observation.
    """

    name: str
    reader: str
    advice: Mapping[Masking, str]
    shape: Shape
    takes_calls: bool = True
    """True if the reader accepts actions as tool calls."""
    takes_labels: bool = True
    """False if the reader refuses additional keys, such as the labels of a run with a repairer."""
    label_key: str = "labels"
    """Key of those labels. TRL reads `labels` as token labels."""
    form: Form = "react"

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        with_calls = self.form == "tools"
        play: Sequence[chat_shapes.AnyMessage] = to_tool_messages(trajectory) if with_calls else to_messages(trajectory)
        tools = tools_of(trajectory.script) if with_calls else ()
        for number, messages in enumerate(conversations(play, masking), start=1):
            assistant_turns = sum(message.role == "assistant" for message in messages)
            trained = sum(message.loss for message in messages)
            name = trajectory.id + self._id_suffix(masking, number)
            labels = chat_shapes.labels(trajectory, messages, self.label_key) if self.takes_labels else {}
            yield ExportRecord({**self.shape(name, messages, tools), **labels}, trained, assistant_turns - trained)

    def _id_suffix(self, masking: Masking, number: int) -> str:
        """Return the suffix of a record's id for `split`, and for `drop` in a format without flags."""
        if masking is Masking.SPLIT:
            return f"#{number}"
        return DROPPED if masking is Masking.DROP and Masking.FLAG not in self.advice else ""


class Format(Protocol):
    """Interface of export formats."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def reader(self) -> str:
        """Name of the program that reads the format."""
        ...

    @property
    def advice(self) -> Mapping[Masking, str]:
        """Supported maskings, the default first, each with the reader's settings for it."""
        ...

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        """Yield the records of one trajectory, or reasons for their absence."""
        ...


class PaperFormat:
    """Format with the paper's keys (sections 3.1 and 3.2), the closing observation and the DungeonMaster's thoughts.

    Script and trajectory are JSON text, because environments have no common schema for a table.
    """

    name: str = "paper"
    reader: str = "the paper's own JSON"
    advice: Mapping[Masking, str] = MappingProxyType(
        {Masking.FLAG: "`script` and `trajectory` hold JSON text; the DM turn after a mistake has its error flag set."}
    )

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[ExportRecord]:
        del masking
        turns = [turn.to_paper(number) for number, turn in enumerate(trajectory.turns, start=1)]
        data: dict[str, JsonValue] = {
            "id": trajectory.id,
            "persona": trajectory.persona.text,
            "script": write_json(trajectory.script.to_paper()).decode(),
            "trajectory": write_json(turns).decode(),
            **chat_shapes.labels(trajectory, to_messages(trajectory)),
        }
        player_turns = sum(isinstance(turn, PlayerTurn) for turn in trajectory.turns)
        mistakes = len(trajectory.mistakes())
        yield ExportRecord(data, player_turns - mistakes, mistakes)


_DROP = "Mistakes and the answers to them are left out, so the records show no refinement."
_SPLIT = "One record per correct turn; only its last message is marked for training."

_PARALLEL_ADVICE = {
    Masking.FLAG: "A message of several calls has one flag: a mistake among them keeps it out of training whole.",
    Masking.SPLIT: "A message of several calls with a mistake among them is context alone.",
    Masking.DROP: "Of a message of several calls, only the mistakes are left out.",
}


def _flag_advice(text: str) -> Mapping[Masking, str]:
    return {Masking.FLAG: text, Masking.SPLIT: f"{_SPLIT} {text}", Masking.DROP: f"{_DROP} {text}"}


_ALL: tuple[Format, ...] = (
    ChatFormat(
        "sharegpt",
        "LLaMA-Factory, classic",
        {
            Masking.SPLIT: "This format has no flag per message, so there is one record per correct turn. Set "
            "`mask_history: true` in LLaMA-Factory's training file, or history, mistakes included, is trained on. "
            "docs/export.md has the entry of the file in `dataset_info.json`.",
            Masking.DROP: f"This format has no flag per message. {_DROP} Leave `mask_history` false.",
        },
        chat_shapes.sharegpt,
        takes_calls=False,
    ),
    ChatFormat(
        "llamafactory",
        "LLaMA-Factory v1",
        _flag_advice("`loss_weight` is read from each message; no converter is needed."),
        chat_shapes.llamafactory,
        takes_calls=False,
    ),
    ChatFormat(
        "openai",
        "OpenAI fine-tuning",
        _flag_advice("`weight` 0 keeps an assistant message out of training; upload the file as it is."),
        chat_shapes.openai,
        takes_labels=False,
    ),
    ChatFormat(
        "trl",
        "TRL, with a template that honours `loss`",
        _flag_advice(
            "Set `assistant_only_loss=True` and a chat template whose generation markers honour the key `loss`; stock "
            "templates ignore it and train on mistakes. With a stock template use the format `trl-split`."
        ),
        chat_shapes.flagged("loss", arguments="object"),
        label_key="turn_labels",
    ),
    ChatFormat(
        "trl-split",
        "TRL, any template",
        {Masking.SPLIT: "One prompt and completion per correct turn; TRL trains on completions only."},
        chat_shapes.prompt_completion,
        label_key="turn_labels",
    ),
    ChatFormat(
        "axolotl",
        "Axolotl",
        _flag_advice("Set `type: chat_template` and `message_field_training: training` for this data set."),
        chat_shapes.flagged("training"),
    ),
    ChatFormat(
        "tinker",
        "Tinker's cookbook",
        _flag_advice(
            "`trainable` is on each message: set `train_on_what` to `TrainOnWhat.CUSTOMIZED`. The cookbook's "
            "FromConversationFileBuilder reads text; docs/export.md shows how to read tool calls."
        ),
        chat_shapes.flagged("trainable"),
    ),
    ChatFormat(
        "slime",
        "slime",
        _flag_advice(
            "`step_loss_mask` is read from each message by slime.rollout.sft_rollout: set `--input-key messages`, a "
            "`--loss-mask-type` other than distill_qwen, and with tool calls `--tool-key tools`."
        ),
        chat_shapes.flagged("step_loss_mask", int, arguments="object"),
    ),
    ChatFormat(
        "prime-rl",
        "prime-rl's SFT",
        {
            Masking.DROP: "prime-rl trains on every message of the assistant, those of a prompt too, so no mistake "
            f"can stay in the context. {_DROP}"
        },
        chat_shapes.plain,
    ),
    ChatFormat(
        "agentinstruct",
        "the released form of AgentInstruct and AgentRefine",
        _flag_advice("`loss` is true on the messages to train on."),
        chat_shapes.agentinstruct,
        takes_calls=False,
    ),
    ChatFormat(
        "ms-swift",
        "ms-swift",
        _flag_advice("`loss` is read from each message."),
        chat_shapes.flagged("loss"),
        takes_calls=False,
    ),
    PaperFormat(),
    PreferenceFormat(),
    AtifFormat(),
    WorldFormat(),
)

TOKENS = "tokens"
"""Name of the format of token ids and labels, which `refinesynth.train` writes."""

FORMATS: Mapping[str, Format] = MappingProxyType({item.name: item for item in _ALL})


def find_format(name: str | Format, form: str = "react") -> Format:
    """Return the format of that name in this form; raises InputError for an unknown name or an unsupported form."""
    if form not in get_args(Form):
        raise InputError(f"there is no form {form!r}; choose one of: {', '.join(get_args(Form))}")
    if not isinstance(name, str):
        return name
    if fmt := FORMATS.get(name.strip().casefold()):
        if isinstance(fmt, WorldFormat):
            return WorldFormat("react" if form == "react" else "tools")
        return fmt if form == "react" else _with_calls(fmt)
    if name.strip().casefold() == TOKENS:
        raise InputError(
            f"the format {TOKENS!r} needs a model's tokenizer: `refinesynth export --format {TOKENS} --model NAME`, or "
            "`refinesynth.train.write_tokens`"
        )
    similar = difflib.get_close_matches(name.casefold(), (*FORMATS, TOKENS), n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise InputError(f"there is no export format {name!r}{hint} Choose one of: {', '.join(FORMATS)}, or {TOKENS}.")


def _with_calls(fmt: Format) -> Format:
    if isinstance(fmt, ChatFormat) and fmt.takes_calls:
        advice = {masking: f"{text} {_PARALLEL_ADVICE[masking]}" for masking, text in fmt.advice.items()}
        return replace(fmt, form="tools", advice=advice)
    if isinstance(fmt, PreferenceFormat):
        return replace(fmt, form="tools")
    names = ", ".join(fmt.name for fmt in _ALL if isinstance(fmt, WorldFormat) or getattr(fmt, "takes_calls", False))
    raise InputError(f"the format {fmt.name!r} cannot be written with tool calls; use one of: {names}")


def find_masking(form: Format, masking: str | None) -> Masking:
    """Return the masking of that name, or the format's default for None; raises InputError for an unsupported masking."""
    if masking is None:
        return next(iter(form.advice))
    for supported in form.advice:
        if supported == masking:
            return supported
    can = " or ".join(repr(str(supported)) for supported in form.advice)
    if masking not in set(Masking):
        raise InputError(f"there is no masking {masking!r}; the format {form.name!r} can do {can}")
    others = ", ".join(name for name, fmt in FORMATS.items() if masking in fmt.advice)
    hint = " It has no flag per message, so mistakes would be trained on." if masking == Masking.FLAG else ""
    raise InputError(f"the format {form.name!r} cannot do masking={masking!r}.{hint} Use {can}, or one of: {others}.")
