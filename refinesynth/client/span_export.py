"""Spans sent over OTLP, as the variables `OTEL_EXPORTER_OTLP_*` say; what does not arrive is counted and said."""

import logging
from collections.abc import Sequence
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

_log = logging.getLogger("opentelemetry.refinesynth")
"""Beside OpenTelemetry's own, which Python prints where nothing else is configured. Not among the run's events: those
have ended."""

_PATIENCE = 1.5
"""Seconds that the end of a run waits for a collector."""


class _Exporter(OTLPSpanExporter):
    sent = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self.sent += len(spans) * (result is SpanExportResult.SUCCESS)
        return result


class _Processor(BatchSpanProcessor):
    ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.ended += 1
        super().on_end(span)


class SpanExport:
    """Sends what its `provider` records, in the background, until it is closed."""

    def __init__(self, service: str) -> None:
        # Each failed try is a line there; what became of all spans is said once, when this is closed.
        logging.getLogger("opentelemetry.exporter.otlp.proto.http").setLevel(logging.CRITICAL)
        self._exporter = _Exporter()
        self._processor = _Processor(self._exporter)
        self.provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}), shutdown_on_exit=False)
        self.provider.add_span_processor(self._processor)

    def close(self) -> None:
        """Send what is still there, for no longer than a moment, and say what was lost."""
        ending = Thread(target=self.provider.shutdown, daemon=True)
        ending.start()
        ending.join(_PATIENCE)
        if lost := self._processor.ended - self._exporter.sent:
            _log.warning(
                "%d of %d spans did not arrive: is a collector where OTEL_EXPORTER_OTLP_ENDPOINT says (by default http://localhost:4318)?",
                lost,
                self._processor.ended,
            )
