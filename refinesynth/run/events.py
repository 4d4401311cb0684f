"""What happened, as it happened: events.jsonl, one JSON object a line with `event`, `level` and `timestamp` (UTC).

The logger is bound to the run's own file. structlog's global configuration is neither read nor changed.

Events, at level info unless said otherwise; docs/events.md lists their fields:
    moved_aside: a run that was in the folder is now in the folder `to`. lines_missing: `episodes` episodes, from
    `first_episode` on, are made again, because their lines are not in the files. run_started: what was asked;
    `finished` and `accepted` say what was there already. persona_skipped: a row that is no persona; `line` and
    `reason`. Only the first few are listed. episode_finished: `index`, `id`, `accepted`, `trajectories`, `reason`, what
    was refused, tokens, cost. contaminated: `trajectory` that is kept and shares words with an evaluation set; how many
    `overlaps`, and the `first` few. episode_curated: `index`, `id`, and how many `trajectories` are left of an episode
    of which some were refused in its turn. stopped_early: patience ran out; `why`, the counts, and the `rule` that
    refused most. A warning. run_ended: `why`, the counts, and the `seconds` that this process took; always a process's
    last event, unless it was killed.
"""

import logging
from typing import TYPE_CHECKING, cast

from refinesynth.run.lines import LineWriter
from refinesynth.text.jsontext import write_json

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


def open_events(writer: LineWriter, *, level: int = logging.INFO) -> "FilteringBoundLogger":
    """A structlog logger that writes events of `level` and above to `writer`."""
    # Imported here: it brings rich with it, and reading a run needs neither.
    import structlog

    logger = structlog.wrap_logger(
        _Lines(writer),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=_as_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return cast("FilteringBoundLogger", logger)


class _Lines:
    """What structlog calls a wrapped logger: one method a level."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def info(self, line: bytes) -> None:
        self._writer.write(line)

    debug = warning = error = critical = info


def _as_json(event: object, **_: object) -> bytes:
    return write_json(event, default=repr)
