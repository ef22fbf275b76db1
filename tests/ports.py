"""Ports for servers that tests start."""

from raceway.cli.ports import IN_A_ROW, free_port_base

__all__ = ["IN_A_ROW", "free_port_base"]
