"""Small scripts and drafts that the rule tests share, and rules as another package would bring them."""

from collections.abc import Iterator
from dataclasses import dataclass

from samples import dm, player

from refinesynth.rules import BaseRule, Rule, Violation, verify
from refinesynth.rules.registry import BUILT_IN
from refinesynth.testing import Corruption
from refinesynth.trajectory import ActionSpec, Draft, DraftTurn, MistakeKind, PlayerTurn, Script, read_turn
from refinesynth.world import world_of

GO = ActionSpec(name="go to {place}", pattern="go to (.+)", parameters={"place": ("hall", "kitchen", "cellar")})
TAKE = ActionSpec(
    name="take {item} from {place}",
    pattern=r"^\s*take\s+(?P<item>.+?)\s+from\s+(?P<place>.+)$",
    parameters={"item": ("mug", "key"), "place": ("hall", "kitchen")},
)
SAY = ActionSpec(name="say {words}", pattern="say (.+)", parameters={"words": ()})
LOOK = ActionSpec(name="look", pattern="look")
HOUSE = Script(
    environment={"hall": {"items": ["key"]}, "kitchen": {"items": ["mug"]}},
    goal="Bring the mug to the hall.",
    completion_conditions=("the mug is in the hall",),
    actions=(GO, TAKE, SAY, LOOK),
)

GARBAGE = read_turn({"role": "Player", "Thought": "no action here"})


def right(action: str, observation: str = "") -> tuple[DraftTurn, DraftTurn]:
    """An exchange that the DM accepts; the observation names the action unless given."""
    return player(action), dm(observation or f"You did: {action}.")


def wrong(action: str, kind: MistakeKind = MistakeKind.PLACE) -> tuple[DraftTurn, DraftTurn]:
    return player(action), dm("That fails.", kind)


def draft(*parts: tuple[DraftTurn, ...] | DraftTurn, script: Script = HOUSE, finished: bool = True) -> Draft:
    turns: list[DraftTurn] = []
    for part in parts:
        turns.extend(part if isinstance(part, tuple) else (part,))
    return Draft(script=script, turns=tuple(turns), finished=finished)


def executed(script: Script, *acts: str, finished: bool = False, opening: str = "") -> Draft:
    """These actions, answered as the rulebook has it."""
    world, state = world_of(script), script.environment
    turns: list[DraftTurn] = [dm(opening)] if opening else []
    for action in acts:
        ruling = world.step(state, action)
        state = ruling.state
        answer = dm(ruling.text, ruling.kind) if ruling.kind else dm(ruling.text)
        turns += [player(action), answer.model_copy(update={"progress": ruling.progress})]
    return Draft(script=script, turns=tuple(turns), finished=finished)


def found(rule: Rule, subject: Draft) -> list[tuple[str, int]]:
    """Code and turn of each violation."""
    return [(violation.code, violation.turn) for violation in rule(subject)]


def accepts(rule: Rule, subject: Draft) -> bool:
    return verify(subject, rule).accepted


def assert_caught(corruption: Corruption, chain: Rule) -> None:
    """The chain refuses it, also by the rule named for it, which refuses it alone."""
    verdict = verify(corruption.draft, chain)
    assert not verdict.accepted
    assert corruption.rule in {violation.rule for violation in verdict.violations}
    assert not accepts(BUILT_IN[corruption.rule](), corruption.draft)


END = right("look", "There it is. Task Succeed")


@dataclass(frozen=True)
class NeverSay(BaseRule):
    """A user's own rule."""

    word: str = "zounds"

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for at, turn in enumerate(draft.turns):
            if isinstance(turn, PlayerTurn) and self.word in turn.action:
                yield self.violation(at, "said", f"Do not say {self.word}.")


def never_shout(word: str = "HEY") -> Rule:
    """A user's factory."""
    return NeverSay(word.upper())


def plain(draft: Draft, /) -> Iterator[Violation]:
    """A rule without the base class: any callable of the shape."""
    return NeverSay()(draft)


def make_plain() -> Rule:
    return plain


def makes_nothing() -> int:
    return 7


def makes_trouble() -> Rule:
    raise RuntimeError("no licence")


NOT_CALLABLE = 7
