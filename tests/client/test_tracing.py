"""Spans of a run: one trace an episode, joined with the rest by the episode's id; none unless they are asked for."""

import sys
from pathlib import Path
from threading import Event

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from refinesynth import synthesize
from refinesynth.client.tracing import Tracing, instrumented, span, traced
from refinesynth.errors import ConfigurationError
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


def test_exporting_without_the_packages_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "refinesynth.client.span_export", raising=False)
    with pytest.raises(ConfigurationError, match=r"refinesynth\[otel\]"), traced(Tracing(export=True)):
        pass


def test_exported_spans_are_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    sent: list[str] = []

    def export(_self: object, spans: list[ReadableSpan]) -> SpanExportResult:
        sent.extend(one.name for one in spans)
        return SpanExportResult.SUCCESS

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    with traced(Tracing(export=True)), span("episode"):
        pass
    assert sent == ["episode"]


def test_spans_that_no_collector_takes_are_counted_and_the_end_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    answered = Event()

    def hang(_self: object, _spans: list[ReadableSpan]) -> None:
        assert answered.wait(60)

    monkeypatch.setattr(OTLPSpanExporter, "export", hang)
    try:
        with traced(Tracing(export=True)):
            for name in ("episode", "attempt"):
                with span(name):
                    pass
        assert not answered.is_set()
    finally:
        answered.set()
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == ["2 of 2 spans did not arrive"]


def test_models_are_as_they_are_where_no_spans_are_wanted() -> None:
    from pydantic_ai.models.test import TestModel

    model = TestModel()
    assert instrumented(model) is model
    with traced(Tracing()):
        assert instrumented(model) is not model
