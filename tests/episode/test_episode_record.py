"""What refused attempts have wasted: everything that an episode paid is charged once, and what is kept is not waste."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.usage import RequestUsage

from refinesynth.backends import Role
from refinesynth.client.session import Session
from refinesynth.episode.play import EpisodeRecord
from refinesynth.outcome import Cost, Refused, wasted
from refinesynth.rules import Severity, Violation
from refinesynth.trajectory import Draft, Persona, PlayerTurn, Script, Usage

PERSONA = Persona(text="Somebody")
SCRIPT = Script(environment={}, goal="Rest.", completion_conditions=(), actions=())


def violation(rule: str, severity: Severity = Severity.REJECT) -> Violation:
    return Violation(rule=rule, turn=0, code="wrong", message="No.", severity=severity)


@dataclass
class ByHand:
    """An episode without models: what is paid is entered by hand."""

    session: Session = field(default_factory=lambda: Session(id="1", seed=1))

    def __post_init__(self) -> None:
        self.record = EpisodeRecord(session=self.session, persona=PERSONA)

    def pay(self, tokens: int) -> None:
        usage = RequestUsage(input_tokens=tokens, output_tokens=0)
        self.session.enter(Role.PLAYER, usage, tokens / 1_000)

    def script(self, tokens: int, *rules: str) -> None:
        self.record.begin_script()
        self.pay(tokens)
        if rules:
            self.record.refuse_script(SCRIPT, [violation(rule) for rule in rules])

    def draft(self, tokens: int, turns: int, *rules: str, after: int = 0) -> None:
        self.record.begin_draft(after=after)
        self.pay(tokens)
        if rules:
            draft = Draft(script=SCRIPT, turns=(PlayerTurn(thought="?", action="wait"),) * turns)
            self.record.refuse_draft(draft, [violation(rule) for rule in rules])

    def charged(self) -> list[int]:
        return [item.usage.input_tokens for item in self.record.close()]


@pytest.mark.parametrize(
    ("drafts", "charged"),
    [
        ([(100, 10, 0, "Rule"), (40, 12, 8)], [20]),
        # A later refusal that keeps nothing has wasted what was kept before it.
        ([(100, 10, 0, "Rule"), (40, 12, 8, "Rule"), (90, 12, 0)], [20, 120]),
        # Of what nobody goes on from, nothing is kept.
        ([(100, 10, 0, "Rule"), (40, 12, 8, "Rule")], [20, 120]),
        # An attempt without a turn is wasted as a whole.
        ([(100, 4, 0, "Rule"), (30, 2, 2, "Answer"), (60, 6, 2)], [50, 30]),
    ],
)
def test_turns_that_are_kept_are_no_waste(
    drafts: list[tuple[int, int, int, *tuple[str, ...]]], charged: list[int]
) -> None:
    episode = ByHand()
    episode.script(50)
    for tokens, turns, after, *rules in drafts:
        episode.draft(tokens, turns, *rules, after=after)
    assert episode.charged() == charged


def test_rules_that_refuse_the_same_share_its_cost_and_warnings_pay_nothing() -> None:
    refused = Refused(
        episode="1",
        persona=PERSONA,
        stage="script",
        attempt=1,
        violations=(violation("A"), violation("B"), violation("A"), violation("C", Severity.WARN)),
        usage=Usage(requests=3, input_tokens=101),
        cost_usd=1.0,
    )
    found = wasted([refused, refused.model_copy(update={"violations": (), "text": "broken off"})])
    assert {rule: spent.usage.input_tokens for rule, spent in found.items()} == {"A": 50, "B": 51}
    assert sum(found.values(), Cost()) == Cost(usage=refused.usage, cost_usd=1.0)


attempts = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 9), st.integers(0, 9)), max_size=6)


@given(scripts=st.lists(st.integers(0, 1_000), max_size=3), drafts=attempts, accepted=st.none() | st.integers(0, 1_000))
def test_nothing_is_charged_twice_and_nothing_that_was_refused_is_free(
    scripts: list[int], drafts: list[tuple[int, int, int]], accepted: int | None
) -> None:
    episode = ByHand()
    for tokens in scripts:
        episode.script(tokens, "S")
    episode.script(7)
    kept = 0
    for tokens, new, keep in drafts:
        episode.draft(tokens, kept + new, "D", after=kept)
        kept = min(keep, kept + new)
    if accepted is not None:
        episode.draft(accepted, kept + 1, after=kept)
    total, charged = episode.session.spent.usage.input_tokens, sum(episode.charged())
    assert charged <= total - 7 - (accepted or 0)
    if accepted is None:
        # Nobody went on: all but the script that passed was in vain.
        assert charged == total - 7
    assert all(tokens >= 0 for tokens in episode.charged())
    assert sum(spent.usage.input_tokens for spent in wasted(episode.record.close()).values()) == charged
