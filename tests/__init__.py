"""Tests of the whole project; `tests/` repeats the tree of `src/raceway`."""
