"""A run's progress in a notebook: one line below the cell, replaced as the run goes on."""

import time
from collections.abc import Callable
from importlib import import_module

from refinesynth.errors import InputError
from refinesynth.synthesis.progress import Progress

_EVERY_S = 0.5
"""Between two lines at least, in seconds: each is a message to the browser."""


def shown_in_notebook() -> Callable[[Progress], None]:
    """What shows the moments that it is called with, as text; markup in them means nothing.

    Raises:
        InputError: This is no notebook.
    """
    try:
        shell, display = import_module("IPython"), import_module("IPython.display")
    except ModuleNotFoundError:
        shell = display = None
    if shell is None or display is None or shell.get_ipython() is None:
        raise InputError(
            "progress=True shows a line in a notebook, and this is none; elsewhere give on_progress, such as print"
        )
    line = display.display({"text/plain": ""}, raw=True, display_id=True)
    shown = 0.0

    def show(moment: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_S or not moment.in_flight:
            shown = now
            line.update({"text/plain": str(moment)}, raw=True)

    return show
