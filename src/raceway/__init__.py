"""Raceway: one durable message bus for four wire protocols. See `docs/` for the manual."""

__version__ = "0.1.0"
