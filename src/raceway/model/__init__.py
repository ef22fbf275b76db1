"""The shared vocabulary: rows, batches, intents, names. Frozen, no I/O, no clock."""
