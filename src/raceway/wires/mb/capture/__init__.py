"""Read captured MB traffic: `reader` cuts messages, `rules` checks many at once."""
