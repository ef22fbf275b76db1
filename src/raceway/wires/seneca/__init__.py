"""Seneca."""
