"""Undelivered."""
