"""Traces for OpenTelemetry, made from the journal. Nothing here is loaded unless it is asked for."""
