"""How much of an episode's script is that of the examples that its writer was shown."""

from collections.abc import Mapping
from functools import lru_cache

from refinesynth.diversity.borrowing import Borrowed, Marks
from refinesynth.prompts import SHOWN, Kind, Prompts, drawn
from refinesynth.trajectory import Script


def borrowed_from(prompts: Prompts, script: Script, *, seed: int) -> Borrowed | None:
    """Counts of what the script has in common with the examples that were shown by this seed, and with as many others.

    The others are the next ones of the same draw: chance decided which were shown. None if there are not as many.
    """
    kind = Kind.GROUNDED if script.grounded else Kind.SCRIPTS
    marks = _marks(prompts)[kind]
    shown, others = drawn(marks, kind, seed), drawn(marks, kind, seed, after=SHOWN)
    if not shown or len(others) < len(shown):
        return None
    return Borrowed.of(Marks.of(script), shown=shown, others=others)


@lru_cache(maxsize=4)
def _marks(prompts: Prompts) -> Mapping[Kind, tuple[Marks, ...]]:
    examples = prompts.examples
    return {
        Kind.SCRIPTS: tuple(map(Marks.of, examples.scripts)),
        Kind.GROUNDED: tuple(map(Marks.of, examples.grounded)),
    }
