"""The dataset card, read as the Hugging Face Hub and a Markdown reader read it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_samples import ORIGIN, a_trajectory
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from samples import dm, player

from refinesynth.errors import InputError
from refinesynth.export import CardCounts, CardFacts, ExportReport, Masking, render_card
from refinesynth.testing import texts
from refinesynth.trajectory import Refinements, Trajectory, Usage

HOSTILE = (
    "x' \"---\nlicense: mit\n# Head | <script>alert(1)</script> [a](http://b) ![i](j) `` ` `` {{ 7 * 7 }} \u2028\x00"
)


def report(name: str = "data/train-*.parquet") -> ExportReport:
    return ExportReport(
        path=Path(name), format="openai", masking=Masking.FLAG, trajectories=3, left_out=1, records=2, trained=4,
        masked=2, advice="Upload it.",
    )  # fmt: skip


def facts(**changes: Any) -> CardFacts:
    usual: dict[str, Any] = {
        "repo": "me/first",
        "title": "First run",
        "licence": "apache-2.0",
        "tally": CardCounts.of([a_trajectory()]),
    }
    return CardFacts(**{**usual, **changes})


def header(card: str) -> dict[str, Any]:
    return DatasetCard(card).data.to_dict()


def body(card: str) -> str:
    return DatasetCard(card).text


def test_the_header_is_what_the_hub_reads() -> None:
    assert header(render_card(facts(tags=("kitchen",), language=("en", "de")), report())) == {
        "license": "apache-2.0",
        "language": ["en", "de"],
        "pretty_name": "First run",
        "size_categories": ["n<1K"],
        "task_categories": ["text-generation"],
        "tags": ["refinesynth", "refinement-tuning", "agent", "synthetic", "kitchen"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]}],
    }


def test_the_header_names_both_splits_and_no_language_that_nobody_stated() -> None:
    card = render_card(facts(held_out=report("data/test-*.parquet")), report())
    assert header(card)["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-*.parquet"},
                {"split": "test", "path": "data/test-*.parquet"},
            ],
        }
    ]
    assert "language" not in header(card)
    assert "| held out, and not in this table: trajectories in data/test-\\*.parquet | 3 |" in body(card)
    with pytest.raises(InputError, match="'english' is no language code"):
        facts(language=("english",))


def test_the_body_has_counts_generators_rules_yield_and_citation() -> None:
    funnel = {"personas started": 4, "drafts refused": 1_234, "accepted": 3}
    text = body(render_card(facts(funnel=funnel), report()))
    for line in (
        "# First run",
        "| player turns | 4 |",
        "| of these mistakes | 2 |",
        "| of these logic | 1 |",
        "| of these parameter | 1 |",
        "| refinements: mistakes that are answered or abandoned | 2 |",
        "| messages to train on | 4 |",
        "1 of the trajectories hold nothing to train on and have no record.",
        'dataset = load_dataset("me/first")',
        "Format: `openai`, masking: `flag`. Upload it.",
        "- `player`: `gpt-4o`, 1 trajectories",
        "- checked with `strict(min_refinements=2)`: 1 trajectories",
        "- cost: 0.25 US dollars",
        "| drafts refused | 1,234 |",
    ):
        assert line in text.splitlines()
    assert "arXiv:2501.01702" in text


def test_what_is_left_out_and_what_becomes_of_a_mistake_is_told() -> None:
    pairs = replace(report(), masking=Masking.PAIR, remarks=("Left out, mistakes without a repair: 3.",))
    text = body(render_card(facts(), pairs))
    assert "\n\nLeft out, mistakes without a repair\\: 3.\n\n" in text
    assert "is what a record rejects, and stays in the context of later ones.\n\n1 of" in text
    assert "not to be trained on" not in text
    assert "is not to be trained on" in body(render_card(facts(), report()))
    dropped = body(render_card(facts(), replace(report(), masking=Masking.DROP)))
    assert "1 agent trajectories without their mistakes and the answers to them, each in" in dropped
    assert "no record holds it or the answer to it.\n\n1 of" in dropped
    assert "not to be trained on" not in dropped
    assert "contain mistakes" not in dropped


def structure(text: str) -> list[tuple[str, str]]:
    """Kinds of block and inline elements, without their text."""
    found: list[tuple[str, str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        inner = Counter(child.type for child in token.children or () if child.type not in {"text", "text_special"})
        found.append((token.type, str(sorted(inner.items()))))
    return found


@given(texts() | st.just(HOSTILE))
def test_no_text_changes_the_shape_of_the_card(hostile: str) -> None:
    origin = ORIGIN.model_copy(update={"models": {"player": "m"}, "rules": "r", "package_version": "v"})
    tame = a_trajectory().model_copy(update={"provenance": origin})
    wild = tame.model_copy(
        update={"provenance": origin.model_copy(update={"models": {"player": hostile}, "rules": hostile})}
    )

    def card(one: Trajectory, text: str, name: str) -> str:
        said = {"title": text, "tags": (text,), "funnel": {text + "x": 1}}
        return render_card(facts(tally=CardCounts.of([one]), **said), report(name))

    calm, odd = card(tame, "t", "data/train-*.parquet"), card(wild, hostile, (hostile + "x").replace("/", "_"))
    assert header(odd).keys() == header(calm).keys()
    assert header(odd)["license"] == "apache-2.0"
    assert [*header(odd)["tags"][:4]] == header(calm)["tags"][:4]
    assert len(header(odd)["configs"]) == 1
    empty_title = ("heading_open", "[]")
    assert [item for item in structure(body(odd)) if item != empty_title] == [
        item for item in structure(body(calm)) if item != empty_title
    ]
    assert "<script" not in MarkdownIt("commonmark").enable("table").render(body(odd))


def test_a_bare_address_is_no_link_for_readers_that_make_links_of_them() -> None:
    assert "# See WWW\\.example.org" in render_card(facts(title="See WWW.example.org"), report())


def test_a_tally_counts_kinds_and_repairs() -> None:
    again = a_trajectory(
        player("take moon"),
        dm("No.", "place"),
        player(" take moon "),
        dm("No.", "place"),
        player("look"),
        dm("Task Succeed"),
    )
    tally = CardCounts.of([again, a_trajectory(), a_trajectory(player("take moon"), dm("No.", "logic"))])
    assert tally.figures.trajectories == 3
    assert tally.player_turns == 8
    assert tally.figures.mistakes == {"place": 2, "parameter": 1, "logic": 2}
    assert (tally.figures.refinements, tally.figures.unanswered) == (4, 1)
    assert tally.generators == {("player", "gpt-4o"): 3, ("dungeon_master", "rehearsal"): 3}
    assert tally.usage == Usage(requests=27, input_tokens=3_000, cached_tokens=30, output_tokens=600)
    assert tally.cost_usd == pytest.approx(0.75)


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    free = a_trajectory().model_copy(update={"provenance": ORIGIN.model_copy(update={"cost_usd": None})})
    tally = CardCounts.of([a_trajectory(), free, a_trajectory()])
    assert tally.cost_usd is None
    assert "- cost: unknown" in render_card(facts(tally=tally), report())


def test_what_was_counted_when_it_was_accepted_is_taken() -> None:
    counted = ORIGIN.model_copy(update={"refinements": Refinements(answered=1, abandoned=2, unanswered=1)})
    tally = CardCounts.of([a_trajectory().model_copy(update={"provenance": counted})])
    assert (tally.figures.refinements, tally.figures.abandoned, tally.figures.unanswered) == (3, 2, 1)
    text = render_card(facts(tally=tally), report())
    assert "| of these abandoned: the goal was reached without them | 2 |" in text.splitlines()
    assert "| mistakes that stay unanswered | 1 |" in text.splitlines()


@pytest.mark.parametrize(
    ("count", "category"), [(0, "n<1K"), (999, "n<1K"), (1_000, "1K<n<10K"), (9_999_999, "1M<n<10M"), (10**7, "n>10M")]
)
def test_size_categories(count: int, category: str) -> None:
    for records, held_out in (
        (count, None),
        (count // 2, replace(report("held-out.jsonl"), records=count - count // 2)),
    ):
        card = render_card(facts(held_out=held_out), replace(report(), records=records))
        assert header(card)["size_categories"] == [category]


def test_licences_and_languages_are_identifiers() -> None:
    assert facts(licence=" CC-BY-4.0 ").licence == "cc-by-4.0"
    for licence in ("", "Apache 2.0", "mit\nlicense: x", "-"):
        with pytest.raises(InputError, match="no licence identifier"):
            facts(licence=licence)
