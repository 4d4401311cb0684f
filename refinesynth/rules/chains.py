"""Rule chains of the package: Algorithm 1, our extension of it, its version for grounded play, and the script rules."""

from refinesynth.rules.actions import (
    FreshObservations,
    NoFalseAlarm,
    SucceedsOnce,
    TaskSucceed,
    UnflaggedEnding,
    ValidActions,
)
from refinesynth.rules.observation_words import WordsAgree
from refinesynth.rules.prompt_leaks import NoLeaks
from refinesynth.rules.repairs import EnoughMistakes, NoRepeatedMistake, RealRefinement
from refinesynth.rules.rule import All, FirstFailure, all_of, built_in, first_failure
from refinesynth.rules.rulebooks import STAGES, DifficultyBand
from refinesynth.rules.script_shape import SHAPE
from refinesynth.rules.text_form import (
    Alternation,
    NothingBlank,
    ReadableText,
    ReadsBack,
    RequiredKeys,
    SizeLimits,
    ToTheLetter,
    TurnLimit,
)
from refinesynth.rules.world_replay import Replays


@built_in
def agentrefine(min_refinements: int = 2, *, letter: bool = False) -> FirstFailure:
    """Algorithm 1 of the paper (section 3.2): its checks in its order, with only the first failure reported.

    Every failure keeps the turns before it, except for too few errors, which is reported last and starts over. With
    `letter`, deviations that our readers accept are refused too, see `ToTheLetter`.
    """
    return first_failure(
        *((ToTheLetter(),) if letter else ()),
        ReadableText(),
        RequiredKeys(),
        ValidActions(),
        UnflaggedEnding(),
        TaskSucceed(),
        EnoughMistakes(minimum=min_refinements),
    )


@built_in
def strict(min_refinements: int = 0, *, within: int = 3, max_turns: int = 100, imagined: bool = True) -> All:
    """`agentrefine` and checks beyond the paper; the default of a synthesis, except in grounded play.

    Further checks: a refinement for each mistake after at most `within` player turns, no unchanged repetition of a
    mistake, no false alarm, no leak in a thought, no repeated observation, no success before the end, alternating turns
    that are not blank and can be read back as rendered, at most `max_turns`, and limits of size. All violations are
    reported, not only the first. A trajectory without mistakes is accepted unless `min_refinements` requires some. With
    `imagined=False`, for observations from a program, `NoFalseAlarm` and `FreshObservations` are omitted; they check an
    LLM DungeonMaster.
    """
    return all_of(
        agentrefine(min_refinements),
        Alternation(),
        NothingBlank(),
        ReadsBack(),
        SucceedsOnce(),
        RealRefinement(within=within),
        NoRepeatedMistake(),
        *((NoFalseAlarm(),) if imagined else ()),
        NoLeaks(),
        *((FreshObservations(),) if imagined else ()),
        TurnLimit(most=max_turns),
        SizeLimits(),
    )


@built_in
def grounded(min_refinements: int = 0, *, within: int = 3, max_turns: int = 100) -> All:
    """`strict` for grounded play: the rulebook replays the draft and must confirm flags, progress and success.

    `NoFalseAlarm` is omitted because `Replays` includes it, and `FreshObservations` because a rulebook words the same
    outcome in the same way. Instead, the words must agree with the rulings. The requirements on mistakes and
    refinements are those of `strict`.
    """
    programmed = strict(min_refinements, within=within, max_turns=max_turns, imagined=False)
    return programmed & Replays() & WordsAgree()


@built_in
def script() -> All:
    """Return the requirements on a script before it is played; apply it to a draft without turns."""
    return all_of(*SHAPE)


@built_in
def grounded_script(difficulty: tuple[int, int] | None = None) -> All:
    """Return the requirements on a script with a rulebook before it is played: `script`, then stage by stage an
    executable and solvable world.

    `difficulty` is the range of the shortest known solution's length in actions; None for no limit. After a failed
    stage, the later ones report nothing.

    Raises:
        ConfigurationError: The difficulty is no range.
    """
    band = () if difficulty is None else (DifficultyBand(*difficulty),)
    return all_of(script(), *STAGES, *band)
