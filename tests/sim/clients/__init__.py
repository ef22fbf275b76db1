"""Clients of the wires, each with a strict reader of its own that understands only what the bus may send."""
