"""Names of topics in MB: ASCII letters and digits only, a letter at the start of each level, five levels at most."""

from __future__ import annotations

import re

from raceway.model.topics import MAX_NAME_LENGTH

MAX_MB_LEVELS = 5

# Possessive quantifiers: a name comes from the network and must not be able to make the search backtrack.
_mb_topic = re.compile(r"[A-Za-z][A-Za-z0-9]*+(?:\.[A-Za-z][A-Za-z0-9]*+)*+").fullmatch
_mb_pattern = re.compile(r"(?:(?:[A-Za-z][A-Za-z0-9]*+|\+)\.)*+(?:[A-Za-z][A-Za-z0-9]*+|\+|#)").fullmatch


def is_mb_topic(text: str) -> bool:
    """Return whether a text is a topic by the rules of MB."""
    return _has_mb_size(text) and _mb_topic(text) is not None


def is_mb_pattern(text: str) -> bool:
    """Return whether a text is a pattern by the rules of MB: a topic that may have wildcards, counted as levels."""
    return _has_mb_size(text) and _mb_pattern(text) is not None


def _has_mb_size(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and text.count(".") < MAX_MB_LEVELS
