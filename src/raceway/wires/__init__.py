"""Wires."""
