"""Captured traffic into bronze: one module per wire, each with every rule of its codec."""
