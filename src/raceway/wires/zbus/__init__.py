"""Zbus."""
