"""The traffic of `raceway demo`: a morning at a small airport, over all four wires (see `story`)."""
