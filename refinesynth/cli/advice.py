"""What is said of a run that stopped early: what refused most, one example of it, and what to try."""

import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from refinesynth.cli.funnel import how_to_continue
from refinesynth.cli.reading import why_refused
from refinesynth.cli.terminal import styled
from refinesynth.printable import one_line
from refinesynth.synthesis.result import SynthesisResult

_BESIDE = 60
"""Longest command beside which the reasons are lined up."""


def advice(result: SynthesisResult, arguments: Sequence[str]) -> RenderableType:
    """For a run that was asked for with these arguments of the command line."""
    most = result.by_rule.most_common(1)
    rule, count = most[0] if most else (None, 0)
    example = next((item for item in result.rejected if rule is None or rule in item.rejecting), None)
    parts: list[RenderableType] = []
    if rule is not None:
        refused = result.scripts_refused + result.drafts_refused
        parts.append(
            f"{one_line(rule, most=40)} refused {count:,} of {refused:,} scripts and drafts that were refused."
        )
    run = shlex.quote(str(result.path))
    tries: list[tuple[str, str]] = []
    if example is not None:
        parts += [
            f"For example {example.stage} {example.attempt} of {one_line(example.episode)}:",
            *why_refused(example, rule),
        ]
        tries += [
            (f"refinesynth show {run} {shlex.quote(example.episode)} --refused", "this one in full"),
            (f"refinesynth show {run} --refused", "the others"),
            (
                f"refinesynth verify {run} --rules 'agentrefine()'",
                "what other rules would say, for free; then run with --rules",
            ),
        ]
    tries.append(("--backend NAME", "another model, in a new folder; --backend player=NAME for one role alone"))
    if result.stopped_early == "unreachable":
        tries.append(("-n, PERSONAS, --budget", "fewer trajectories, more personas at the end of these, or more money"))
    tries.append((f"{how_to_continue(arguments, result.path)} --patience 0", "to go on to the end all the same"))
    width = max(len(what) for what, _ in tries if len(what) <= _BESIDE)
    listed = [
        Text.assemble("  ", styled(one_line(what).ljust(width), "bold"), "  ", styled(why, "dim"))
        for what, why in tries
    ]
    return Group(*parts, "", "What to try:", *listed)
