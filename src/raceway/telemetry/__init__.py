"""OpenTelemetry traces, derived from the journal. Nothing here is loaded unless telemetry is enabled."""
