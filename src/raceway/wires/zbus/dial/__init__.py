"""Dial."""
