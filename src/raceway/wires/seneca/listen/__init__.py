"""Listen."""
