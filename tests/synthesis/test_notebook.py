"""What notebooks show is a table of our own making, whatever the text in it says."""

from html.parser import HTMLParser
from typing import Protocol, cast

from hypothesis import example, given
from hypothesis import strategies as st
from samples import provenance

from refinesynth.cost import Cost
from refinesynth.rules import Verdict, Violation
from refinesynth.synthesis import Estimate
from refinesynth.testing import texts, valid_drafts
from refinesynth.text.markup import html_table
from refinesynth.text.printable import printable
from refinesynth.trajectory import Draft, DungeonMasterTurn, Persona, PlayerTurn, Trajectory

HOSTILE = "</pre></td><script>alert(1)</script>'\" onload=x &lt; <img src=x> $\\href{x}$ \x1b[2J\x00\r\u202e{{ 7*7 }}"


class Shown(Protocol):
    """A value that notebooks know to ask."""

    def _repr_html_(self) -> str: ...


class Page(HTMLParser):
    """The elements of a page, and the texts in its cells."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, object]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))
        if tag in {"th", "pre"}:
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)


def page(value: object) -> Page:
    return Page(cast("Shown", value)._repr_html_())  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.tuples(texts(), texts()), max_size=4))
@example([(HOSTILE, HOSTILE)])
def test_no_text_changes_the_elements_of_a_table(rows: list[tuple[str, str]]) -> None:
    shown = Page(html_table(rows))
    assert shown.elements == Page(html_table([("a", "b")] * len(rows))).elements
    assert shown.texts == [printable(text) for row in rows for text in row]


def trajectory(draft: Draft, text: str) -> Trajectory:
    """One in which `text` stands wherever a model writes."""
    script = draft.script.model_copy(
        update={
            "goal": text or " ",
            "actions": tuple(one.model_copy(update={"name": text or " "}) for one in draft.script.actions),
        }
    )
    turns = [
        turn.model_copy(update={"thought": text, "action": text})
        if isinstance(turn, PlayerTurn)
        else turn.model_copy(update={"observation": text})
        for turn in draft.turns
    ]
    origin = provenance()
    return Trajectory.model_construct(
        id=text, persona=Persona.model_construct(text=text), script=script, turns=tuple(turns), provenance=origin
    )


@given(valid_drafts(), texts() | st.just(HOSTILE))
def test_a_trajectory_is_shown_with_its_mistakes_and_nothing_that_a_model_wrote_is_obeyed(
    draft: Draft, text: str
) -> None:
    shown = page(trajectory(draft, text))
    assert shown.elements == page(trajectory(draft, "harmless")).elements
    assert all(printable(told) == told for told in shown.texts)
    mistakes = sum(isinstance(turn, DungeonMasterTurn) and turn.flagged for turn in draft.turns)
    assert sum("✗ mistake" in told for told in shown.texts) == mistakes
    printed = str(trajectory(draft, text))
    assert printable(printed) == printed
    assert printed.count("✗ mistake") == mistakes


@given(texts() | st.just(HOSTILE))
def test_a_verdict_is_shown_with_all_that_was_found(text: str) -> None:
    found = Violation(rule="NoLeaks", turn=3, code="leak", message=text)
    shown = page(Verdict(accepted=False, violations=(found, found), verified_turns=3))
    assert shown.elements == page(Verdict(accepted=True, violations=(found, found), verified_turns=9)).elements
    told = printable(f"turn 4: {text} (leak, reject)")
    assert shown.texts == ["refused", "3 turns verified", "NoLeaks", told, "NoLeaks", told]


def test_an_estimate_is_a_table_in_print_and_on_the_page() -> None:
    found = Estimate.of(
        [(1, Cost()), (0, Cost(cost_usd=None))], n=10, concurrency=4, source="x", elapsed=1.0, episode_seconds=2.0
    )
    shown = page(found)
    assert shown.texts[:4] == ["for n = 10", "likely", "from", "to"]
    assert shown.texts[4:6] == ["personas needed", "20"]
    assert shown.texts[shown.texts.index("cost") :][:4] == ["cost", "unknown", "", ""]
    lines = str(found).splitlines()
    assert len(lines) == len(found.rows()) == 8
    assert lines[1].split() == ["personas", "needed", *found.rows()[1][1:]]
