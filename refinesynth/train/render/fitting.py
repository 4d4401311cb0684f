"""What is done about an example that is longer than the model takes."""

from typing import Literal

from refinesynth.train.tokens import Label, Rendered


def fit(rendered: Rendered, max_length: int, over_length: Literal["truncate", "drop"]) -> Rendered | None:
    """The example, or its longest beginning of at most `max_length` tokens that ends with a trained turn.

    A turn is never cut through: its end-of-turn token is what it is cut behind. None where `over_length` is `drop`, or where not
    even the first trained turn fits in.
    """
    if len(rendered) <= max_length:
        return rendered
    if over_length == "drop":
        # The template may write something behind the last turn, a newline often; to leave that out loses nothing.
        last = rendered.spans[-1].stop if rendered.spans else 0
        return rendered.first(last) if 0 < last <= max_length else None
    ends = [
        span.stop
        for span in rendered.spans
        if span.stop <= max_length and rendered.labels[span.stop - 1] == Label.TRAINED
    ]
    return rendered.first(ends[-1]) if ends else None
