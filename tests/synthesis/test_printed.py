"""`print` of trajectories and estimates, whatever the text in it says."""

from hypothesis import given
from hypothesis import strategies as st
from samples import provenance

from refinesynth.testing import texts, valid_drafts
from refinesynth.text.formatting import printable
from refinesynth.trajectory import Draft, DungeonMasterTurn, Persona, PlayerTurn, Trajectory

HOSTILE = "</pre></td><script>alert(1)</script>'\" onload=x &lt; <img src=x> $\\href{x}$ \x1b[2J\x00\r\u202e{{ 7*7 }}"


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
def test_a_trajectory_is_printed_with_its_mistakes_and_no_control_characters(draft: Draft, text: str) -> None:
    mistakes = sum(isinstance(turn, DungeonMasterTurn) and turn.flagged for turn in draft.turns)
    printed = str(trajectory(draft, text))
    assert printable(printed) == printed
    assert printed.count("✗ mistake") == mistakes
