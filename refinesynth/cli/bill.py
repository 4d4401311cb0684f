"""The bill of a run that goes on: what was paid, what one trajectory costs, what `n` will cost, and how far a budget
reaches.
"""

from collections.abc import Callable

from refinesynth.synthesis.progress import Progress, Surroundings
from refinesynth.text.figures import compact, counted, dollars


def cost(moment: Progress, around: Surroundings) -> str:
    """`12.30 USD of 50.00 USD, 0.0123 USD each, about 39.40 USD in all`."""
    if around.paid.cost_usd is None:
        return "unknown"
    limit = None if around.budget is None else around.budget.usd
    text = dollars(around.paid.cost_usd) + ("" if limit is None else f" of {dollars(limit)}")
    each = _each(moment, moment.cost_usd)
    if not each:
        return text
    text += f", {dollars(each)} each"
    if moment.gained < moment.n:
        text += _forecast(moment, paid=around.paid.cost_usd, each=each, limit=limit, show=dollars)
    return text


def tokens(moment: Progress, around: Surroundings) -> str:
    """`1.23M in (20% cached), 203k out, 812 requests, 3 retries`, and of a budget in tokens what `cost` says of
    dollars.
    """
    usage = around.paid.usage
    cached = f" ({usage.cached_tokens / usage.input_tokens:.0%} cached)" if usage.cached_tokens else ""
    text = (
        f"{compact(usage.input_tokens)} in{cached}, {compact(usage.output_tokens)} out, "
        f"{counted(usage.requests, 'request')}"
    )
    if around.retries:
        text += f", {counted(around.retries, 'retry', 'retries')}"
    limit = None if around.budget is None else around.budget.tokens
    if limit is None:
        return text
    text += f"; {compact(around.paid.tokens)} of {compact(limit)}"
    each = _each(moment, moment.usage.input_tokens + moment.usage.output_tokens)
    if each and moment.gained < moment.n:
        text += _forecast(moment, paid=around.paid.tokens, each=each, limit=limit, show=compact)
    return text


def _each(moment: Progress, spent: float | None) -> float | None:
    """Finished episodes alone count: what is in flight has been paid in part, and has given nothing yet."""
    return None if spent is None or not moment.gained else spent / moment.gained


def _forecast(moment: Progress, *, paid: float, each: float, limit: float | None, show: Callable[[float], str]) -> str:
    in_all = paid + (moment.n - moment.gained) * each
    if limit is not None and in_all > limit:
        reaches = moment.gained + int(max(0.0, limit - paid) / each)
        return f", about {reaches:,} of {moment.n:,} on this budget"
    return f", about {show(in_all)} in all"
