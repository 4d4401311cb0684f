"""`refinesynth backends`: where completions can come from."""

from rich.table import Table

from refinesynth.cli.terminal import output, styled
from refinesynth.client import describe


def backends() -> None:
    """List the backends by name, with their models, how requests travel and whether the keys are set (never the
    keys).
    """
    console = output()
    table = Table.grid(padding=(0, 2))
    for row in describe():
        if row.key_variable is None:
            key = styled("needs no key", "dim")
        else:
            key = styled(
                f"{row.key_variable} {'✓ set' if row.key_set else '✗ not set'}", "green" if row.key_set else "dim"
            )
        table.add_row(styled(row.name, "bold"), styled(row.model), styled(row.path, "dim"), key)
    console.print(table)
    console.print()
    for row in describe():
        console.print(styled(f"{row.name}: {row.note}", "dim"))
    console.print(
        "\nlitellm: asked through its SDK. direct: the same below 128 requests in flight, and from there on over our own HTTP client, at an "
        "eighth of the CPU, since the server speaks OpenAI's protocol. Results are the same; --set path=litellm or path=direct forces one.",
        style="dim",
    )
    console.print(
        "\nAny model string of litellm works as well, such as openrouter/qwen/qwen3-32b or hosted_vllm/MODEL.",
        style="dim",
    )
