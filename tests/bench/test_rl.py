"""Policy gradients in worlds: what could be wrong in silence."""

from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest

pytest.importorskip("transformers", reason="needs the extra train")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.ablation import playing
from bench.ablation.speaking import save_untrained, trained_tokenizer
from bench.ablation.worlds import every_name, scene_of
from bench.rl.one_seed import drawn
from bench.rl.rollouts import Rollout, play
from bench.rl.updating import advantages, logprobs, update
from refinesynth.chat import to_messages
from refinesynth.environments import GroundedEnvironment
from refinesynth.train.data.conversation_reader import read_conversations
from refinesynth.train.render.renderer import Renderer
from refinesynth.train.tokens import Label
from refinesynth.trajectory import Trajectory

pytestmark = pytest.mark.train

NAMES = [f"test {at}" for at in range(3)]


def played(name: str) -> Trajectory:
    return playing.play(name, scene_of(name), None, episode=0)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A model that nobody has trained, and its tokenizer."""
    texts = [message.content for name in NAMES for message in to_messages(played(name))]
    folder = tmp_path_factory.mktemp("model")
    save_untrained(trained_tokenizer(texts, names=every_name()), folder, seed=0, width=32, layers=2)
    return tuple(cast("Any", one).from_pretrained(folder) for one in (AutoModelForCausalLM, AutoTokenizer))


def groups_of(policy: tuple[Any, Any], plays: int) -> list[list[Rollout]]:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    worlds = [GroundedEnvironment(scene_of(name).script, steps=3) for name in NAMES for _ in range(plays)]
    rollouts = play(*policy, worlds)
    return [rollouts[at : at + plays] for at in range(0, len(rollouts), plays)]


class Teacher:
    """A model that finds likely, in the worlds of `NAMES`, what their teacher says there."""

    def __init__(self, tokenizer: Any) -> None:
        self.config = None
        self.size = len(tokenizer)
        self.turns: list[list[list[int]]] = [
            [
                [*tokenizer(message.content, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
                for message in to_messages(played(name))
                if message.role == "assistant"
            ]
            for name in NAMES
        ]
        self.left: list[list[int]] = [[] for _ in NAMES]

    def __call__(self, *, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        told = attention_mask[:, -input_ids.shape[1] :].sum(1).tolist()
        logits = torch.full((*input_ids.shape, self.size), -1e9)
        for at, count in enumerate(told):
            if count > 1:
                self.left[at] = self.turns[at].pop(0)
            logits[at, :, self.left[at].pop(0) if self.left[at] and count else 0] = 0.0
        return SimpleNamespace(logits=logits)


def test_tokens_and_loss_are_those_of_training(policy: tuple[Any, Any]) -> None:
    # Only the player's tokens give loss, and an end-of-turn is the player's.
    _, tokenizer = policy
    rollouts = play(Teacher(tokenizer), tokenizer, [GroundedEnvironment(scene_of(name).script) for name in NAMES])
    renderer = Renderer(tokenizer)
    for name, one in zip(NAMES, rollouts, strict=True):
        assert one.world.success
        (conversation,) = read_conversations([[orjson.loads(played(name).to_json())]])
        (rendered,) = renderer.render(conversation)
        assert one.ids == rendered.input_ids.tolist()
        assert one.drawn == [label == Label.TRAINED for label in rendered.labels]


def test_log_probabilities_are_those_with_which_tokens_were_drawn(policy: tuple[Any, Any]) -> None:
    model, _ = policy
    rollouts = [one for group in groups_of(policy, 2) for one in group]
    assert len({len(one.ids) for one in rollouts}) > 1  # so that some are padded, in drawing and in reading
    then = np.concatenate([np.array(one.logprobs)[one.drawn] for one in rollouts])
    assert logprobs(model, rollouts).detach().numpy() == pytest.approx(then, abs=1e-4)
    assert then.min() < -1


def test_advantages_of_a_group_sum_to_zero_and_are_zero_where_all_rewards_are_equal() -> None:
    good: Any = advantages([[1.0, 0.0, 0.0, 0.5], [0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.0, 1e-3]])
    assert good.sum(1).tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    assert good[1].tolist() == [0.0] * 4
    assert good[[0, 2]].square().mean(1).tolist() == pytest.approx([1.0, 1.0])
    assert int(good[0].argmax()) == 0


def weights(model: Any) -> Any:
    return torch.cat([one.detach().flatten().clone() for one in model.parameters()])


def test_a_step_makes_what_earned_more_likelier_and_equal_rewards_change_nothing(policy: tuple[Any, Any]) -> None:
    model, _ = policy
    groups = groups_of(policy, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def likely(one: Rollout) -> float:
        return float(logprobs(model, [one]).detach().sum())

    before = [[likely(one) for one in group] for group in groups]
    groups[0][0].world.success = groups[2][1].world.success = True
    made = update(model, optimizer, groups)
    assert made.unequal == pytest.approx(2 / 3)
    assert made.astray < 1e-4
    after = [[likely(one) for one in group] for group in groups]
    gained = np.subtract(after, before)
    assert gained[0][0] > gained[0][1]
    assert gained[2][1] > gained[2][0]
    # With what the optimizer remembers of the step before.
    then = weights(model)
    assert update(model, optimizer, groups[1:2]).unequal == 0
    assert torch.equal(weights(model), then)


def test_each_world_is_played_once_before_one_is_played_again() -> None:
    scripts = [scene_of(name).script for name in NAMES]
    found = list(islice(drawn(scripts, 1), 6))
    assert {id(one) for one in found[:3]} == {id(one) for one in found[3:]} == {id(one) for one in scripts}
