"""Spans of a run: one trace an episode, joined with the rest by the episode's id; none unless they are asked for."""

from pathlib import Path

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from refinesynth import synthesize
from refinesynth.client.tracing import Tracing, instrumented, span, traced
from refinesynth.run import RunFolder


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    found = TracerProvider()
    found.add_span_processor(SimpleSpanProcessor(exporter))
    return found


def named(spans: tuple[ReadableSpan, ...], name: str) -> list[ReadableSpan]:
    return [one for one in spans if one.name == name]


def trace_of(one: ReadableSpan) -> int:
    assert one.context is not None
    return one.context.trace_id


@pytest.mark.parametrize("play", ["live", "narrated"])
async def test_every_episode_is_a_trace_with_its_attempts_requests_and_verifications(
    tmp_path: Path, exporter: InMemorySpanExporter, play: str
) -> None:
    tracing = Tracing(provider=provider(exporter))
    result = await synthesize(n=3, play=play, output=tmp_path / "run", concurrency=2, tracing=tracing)  # pyright: ignore[reportArgumentType]
    spans = exporter.get_finished_spans()
    episodes = {str((one.attributes or {})["refinesynth.episode"]): one for one in named(spans, "episode")}
    lines = list(RunFolder.open(tmp_path / "run").episodes())
    assert {line.id for line in lines} <= episodes.keys()
    for line in lines:
        root = episodes[line.id]
        assert root.parent is None
        assert (root.attributes or {})["refinesynth.accepted"] == line.accepted
        of_it = [one for one in spans if trace_of(one) == trace_of(root)]
        assert len([one for one in of_it if one.name.startswith("chat ")]) == line.usage.requests
        assert len(named(tuple(of_it), "attempt")) >= 2
        assert named(tuple(of_it), "verify")
    assert len(result) == 3


async def test_prompts_and_answers_are_in_spans_only_if_asked_for(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    for content in (False, True):
        exporter.clear()
        tracing = Tracing(provider=provider(exporter), content=content)
        await synthesize(["A tinker."], n=1, output=tmp_path / str(content), tracing=tracing)
        told = orjson.dumps([dict(one.attributes or {}) for one in exporter.get_finished_spans()])
        assert (b"A tinker." in told) == content


async def test_without_tracing_nothing_is_made(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    await synthesize(["A tinker."], n=1, output=tmp_path / "run")
    with span("episode", root=True, episode="e") as current:
        current.set_attribute("refinesynth.accepted", True)
    assert not exporter.get_finished_spans()


def test_models_are_as_they_are_where_no_spans_are_wanted() -> None:
    from pydantic_ai.models.test import TestModel

    model = TestModel()
    assert instrumented(model) is model
    with traced(Tracing()):
        assert instrumented(model) is not model
