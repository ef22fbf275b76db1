"""Bytes to intents, outcomes to bytes. Pure: no sockets, no tasks, no clock, no random values."""
