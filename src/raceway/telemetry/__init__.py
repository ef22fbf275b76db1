"""OpenTelemetry traces, derived from the journal. Nothing here is loaded unless telemetry is enabled.

spans      rows of the journal as spans
names      the semantic conventions for messaging, as far as the bus uses them
exporter   spans to a collector, over OTLP
"""
