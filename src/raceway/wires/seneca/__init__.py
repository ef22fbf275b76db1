"""Seneca: JSON messages addressed by pattern, over HTTP and TCP, in the dialects of its clients."""
