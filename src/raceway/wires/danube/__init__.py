"""Danube."""
