"""The chains that come with the package: Algorithm 1, what we add to it, the same for grounded play, and the rules for
scripts.
"""

from refinesynth.rules.actions import FreshObservations, NoFalseAlarm, ValidActions
from refinesynth.rules.ending import SucceedsOnce, TaskSucceed, UnflaggedEnding
from refinesynth.rules.observation_words import WordsAgree
from refinesynth.rules.prompt_leaks import NoLeaks
from refinesynth.rules.repairs import EnoughMistakes, NoRepeatedMistake, RealRefinement
from refinesynth.rules.rule import All, FirstFailure, all_of, built_in, first_failure
from refinesynth.rules.rulebooks import (
    ActionsUsable,
    DifficultyBand,
    GoalFitsConditions,
    NotYetDone,
    RulebookCompiles,
    RulebookRuns,
    SolutionWorks,
    Solvable,
    ValuesExist,
)
from refinesynth.rules.script_shape import (
    ActionCount,
    EnvironmentLimits,
    GroupsFitPlaceholders,
    PatternsAreUnambiguous,
    PatternsCompile,
    PatternsMatchTheirTemplates,
    PatternsNeedText,
    PlaceholdersHaveParameters,
    UniqueNames,
)
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
    """Algorithm 1 of the paper (section 3.2): its checks, in its order, and of their failures the first.

    Every failure keeps the turns before it, but too few errors, reported last, which starts over from nothing. With
    `letter`, what our readers let pass is refused as well; see `ToTheLetter`.
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
    """`agentrefine` and what the paper does not check; the default of a synthesis.

    A real refinement for each mistake `within` so many player turns, no mistake made again unchanged, no false alarm of
    the DM, no leak in a thought, observations that do not repeat, no success before the end, alternating turns that say
    something and can be read back as rendered, at most `max_turns` of them, and not too long. All that is wrong is
    found, not only the first. A trajectory without mistakes is accepted, unless `min_refinements` says otherwise: some
    are to be clean. `imagined=False` is for observations that a program gave: `NoFalseAlarm` and `FreshObservations`,
    which check a DungeonMaster that imagines them, are left out.
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
    """`strict` for grounded play: the world is played again by its rulebook, and every verdict must be the rulebook's.

    No `NoFalseAlarm`, which `Replays` contains, and no `FreshObservations`: a world that answers in its rulebook's own
    words says the same of the same. Instead the words must agree with the rulings. Mistakes are as many, and as well
    repaired, as there: they are what is trained on, by either judge.
    """
    return all_of(
        agentrefine(min_refinements),
        Alternation(),
        NothingBlank(),
        ReadsBack(),
        SucceedsOnce(),
        RealRefinement(within=within),
        NoRepeatedMistake(),
        NoLeaks(),
        TurnLimit(most=max_turns),
        SizeLimits(),
        Replays(),
        WordsAgree(),
    )


@built_in
def script() -> All:
    """Return what a script must satisfy before it is played; give it a draft without turns."""
    return all_of(
        ActionCount(),
        UniqueNames(),
        PlaceholdersHaveParameters(),
        EnvironmentLimits(),
        PatternsCompile(),
        GroupsFitPlaceholders(),
        PatternsNeedText(),
        PatternsMatchTheirTemplates(),
        PatternsAreUnambiguous(),
    )


@built_in
def grounded_script(difficulty: tuple[int, int] | None = None) -> All:
    """Return what a script with a rulebook must satisfy before it is played: `script`, and then stage by stage that its world
    runs.

    `difficulty` is the fewest and the most actions of the shortest solution that is found; None keeps all. Of a script
    that fails at a stage, the later ones say nothing.

    Raises:
        ConfigurationError: The difficulty is no band.
    """
    band = () if difficulty is None else (DifficultyBand(*difficulty),)
    return all_of(
        script(),
        RulebookCompiles(),
        GoalFitsConditions(),
        ValuesExist(),
        RulebookRuns(),
        NotYetDone(),
        SolutionWorks(),
        Solvable(),
        ActionsUsable(),
        *band,
    )
