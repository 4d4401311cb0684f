"""`--play`, and which plays there are to choose from."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from refinesynth.option import PLAY


class ListsPlays(TyperCommand):
    """Command whose help lists the registered plays, looked up only when the help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for option in self.params:
            if option.name == "play":
                option.metavar = f"[{'|'.join(_names())}]"
        super().format_help(ctx, formatter)


def _names() -> tuple[str, ...]:
    from refinesynth.episode import plays

    return plays.known()


def _known(name: str | None) -> str | None:
    """Refuse an unknown name before any other check."""
    if name is not None and name not in (known := _names()):
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, known))}.")
    return name


PlayOption = Annotated[
    str | None,
    typer.Option(
        "--play",
        rich_help_panel=PLAY,
        callback=_known,
        autocompletion=_names,
        help="DM and Player turn by turn (live, the default), one call for both voices (narrated), or as live in a world that is "
        "executed (grounded); or a play of another package, see docs/plays.md.",
    ),
]
