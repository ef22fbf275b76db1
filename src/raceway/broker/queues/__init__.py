"""Queues."""
