"""`refinesynth run --dry-run`: what a run will take, from a handful of personas that are played for it."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rich.text import Text

from refinesynth.cli.display import Display
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.run_display import displayed, import_backends
from refinesynth.cli.terminal import notes, output, print_json
from refinesynth.synthesis.dry_run import CONFIDENCE, SAMPLE, Estimate, estimate
from refinesynth.text.number_format import counted, dollars, duration
from refinesynth.text.printable import one_line


def estimate_and_report(asked: Mapping[str, Any], *, sample: int | None, json: bool) -> ExitCode:
    """Estimate a run, print the estimate and return the exit code; raises what `estimate` raises."""
    count = sample or SAMPLE
    display = Display(notes())
    display.say(f"dry run: plays {counted(count, 'persona')} for real, and pays for that; nothing is kept")
    import_backends(asked)
    found, code = displayed(partial(estimate, **asked, sample=count), display)
    if found is None:
        display.say("interrupted before there was anything to report")
        return code
    # It has been paid for, read or not.
    with suppress(BrokenPipeError):
        if json:
            print_json(found.as_json())
        else:
            output().print(Text(_report(found)), soft_wrap=True)
    return ExitCode.OK


def _report(found: Estimate) -> str:
    cost = "" if found.paid.cost_usd is None else f", cost {dollars(found.paid.cost_usd)}"
    return (
        f"\n{counted(found.episodes, 'persona')} of {one_line(found.source)} played, "
        f"{counted(found.accepted, 'trajectory', 'trajectories')} accepted, in {duration(found.elapsed)}{cost}.\n\n{found}\n\n"
        f"Yield, and what an episode takes, lie in their ranges {CONFIDENCE:.0%} of the time, if other personas are like "
        f"these; the time, if the backend keeps up. A larger --sample narrows them."
    )
