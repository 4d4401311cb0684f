"""Episodes in the shed: their settings, models that answer from a list, and what they answer in a play without
fault."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.models import Model
from samples import SHED, SHED_GROUNDED, dm, player
from scripted import PROMPTS, Answer, Scripted, as_json, said

from refinesynth import rules
from refinesynth.backends import BackendSpec, Role, resolve_roles
from refinesynth.client import open_models
from refinesynth.episode import EpisodeOutcome, EpisodeSettings, play_episode, plays
from refinesynth.prompts import Prompts
from refinesynth.rules import Violation
from refinesynth.settings import Attempts, Grounding
from refinesynth.settings.mistakes import natural
from refinesynth.trajectory import Draft, DungeonMasterTurn, Persona, PlayerTurn, Script, Trajectory

PERSONA = Persona(text="a joiner")
SHIPPED = Prompts()
Turn = PlayerTurn | DungeonMasterTurn


@dataclass(frozen=True)
class SaidAtLast(rules.BaseRule):
    """The ending says "At last"; the fault of another ending lies behind it."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        last = draft.turns[-1]
        if draft.finished and isinstance(last, DungeonMasterTurn) and "At last" not in last.observation:
            yield self.violation(len(draft.turns), "hasty", "Say that it is done at last.")


OPEN = (player("open box"), dm("The box opens. There is a key in it."))
WRONG = (player("take saw"), dm("There is no saw here.", "place"))
TAKE = (player("take key"), dm("You hold the key."))
EARLY = (player("put saw on bench"), dm("You hold no saw.", "logic"))
PUT = (player("put key on bench"), dm("The key is on the bench. Task Succeed"))
PUT_AT_LAST = (PUT[0], dm("At last the key is on the bench. Task Succeed"))
GOOD = (*OPEN, *WRONG, *TAKE, *EARLY, *PUT)

ACTIONS = tuple(turn.action for turn in GOOD if isinstance(turn, PlayerTurn))
THOUGHT = "There is no saw that I could hold, so I do without it."
"""Which answers what is refused in a grounded play, in words."""
WORDED = (
    "The lid of the box swings up. Inside it lies a key.",
    "You look about, but there is no saw in this place.",
    "The key lies cold in your hand.",
    "You reach for a saw that you do not have.",
    "You lay the key down on the bench.",
)
"""What the DungeonMaster of a grounded play makes of it."""


def settings_for(play: str = "live", **given: Any) -> EpisodeSettings:
    """The strictest rules for drafts, unless others are given; settings of the grounding may be given by their
    names."""
    grounding = {name: given.pop(name) for name in Grounding.model_fields if name in given}
    chosen: dict[str, Any] = {
        "rules": rules.grounded() if play == "grounded" else rules.strict(),
        "script_rules": rules.script(),
        "prompts": SHIPPED,
        "grounding": Grounding(**grounding),
        **given,
    }
    return EpisodeSettings(play=play, **chosen)


def only(outcome: EpisodeOutcome) -> Trajectory:
    """The first trajectory of an episode that was accepted."""
    assert outcome.trajectory is not None, outcome.reason
    return outcome.trajectory


def acts(draft: Draft | Trajectory) -> list[str]:
    """The actions of a play, in order."""
    return [turn.action for turn in draft.turns if isinstance(turn, PlayerTurn)]


def rehearsing(backend: BackendSpec = "rehearsal") -> dict[Role, Model]:
    return dict(open_models(resolve_roles(backend)))


def silent() -> Scripted:
    return Scripted(["none"])


def refusing_once() -> Scripted:
    unsound, sound = {"reason": "Unsound.", "accepted": False}, {"reason": "Sound.", "accepted": True}
    return Scripted([as_json(unsound), as_json(sound)])


@dataclass
class Stage:
    """A model for each role that answers from a list."""

    settings: Mapping[str, Any]
    """Of every play, unless a test says otherwise."""
    writer: Scripted
    player: Scripted = field(default_factory=silent)
    master: Scripted = field(default_factory=silent)
    narrator: Scripted = field(default_factory=silent)
    judge: Scripted = field(default_factory=refusing_once)
    repairer: Scripted = field(default_factory=silent)

    def models(self, *roles: Role) -> dict[Role, Model]:
        given = {
            Role.SCRIPT_WRITER: self.writer,
            Role.PLAYER: self.player,
            Role.DUNGEON_MASTER: self.master,
            Role.NARRATOR: self.narrator,
            Role.JUDGE: self.judge,
            Role.REPAIRER: self.repairer,
        }
        return {role: given[role].model for role in roles}

    async def play(self, *, index: int = 3, **given: Any) -> EpisodeOutcome:
        """An episode that has models for the roles that its play asks, and for no other."""
        chosen: dict[str, Any] = {"prompts": PROMPTS, **self.settings, **given}
        settings = settings_for(**chosen)
        roles = plays.find(settings.play).roles(settings)
        return await play_episode(PERSONA, index=index, settings=settings, models=self.models(*roles))


def live(*turns: Turn | Answer, scripts: tuple[Answer, ...] = ()) -> Stage:
    """Player and DungeonMaster give these turns by turns."""
    texts = [said(turn) if isinstance(turn, PlayerTurn | DungeonMasterTurn) else turn for turn in turns]
    return Stage(
        {"mistakes": natural(), "rules": rules.strict(2)},
        writer=Scripted(scripts or [SHED.model_dump_json()]),
        player=Scripted(texts[::2] or ["none"]),
        master=Scripted(texts[1::2] or ["none"]),
    )


def narrated(*answers: Answer) -> Stage:
    """The paper's bounds and rules."""
    settings = {"play": "narrated", "rules": rules.agentrefine(), "attempts": Attempts(calls=4, answers=0)}
    return Stage(settings, writer=Scripted([SHED.model_dump_json()]), narrator=Scripted(answers))


def grounded(
    actions: tuple[Answer, ...] = ACTIONS,
    words: tuple[Answer, ...] = (),
    script: Script = SHED_GROUNDED,
) -> Stage:
    """`actions` in the player's words, or what else it answers."""
    return Stage(
        {"play": "grounded", "mistakes": natural()},
        writer=Scripted([script.model_dump_json()]),
        player=Scripted([said(player(one, THOUGHT)) if isinstance(one, str) else one for one in actions]),
        master=Scripted(words or tuple(map(worded, WORDED))),
    )


def worded(observation: str, thought: str = "So it is.", **more: Any) -> str:
    return as_json({"thought": thought, "observation": observation, **more})
