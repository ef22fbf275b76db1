"""Codec."""
