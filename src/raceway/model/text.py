"""Text: checks, and forms that are safe to show."""

from __future__ import annotations


def is_utf8(data: bytes) -> bool:
    """Return whether these bytes are valid UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def printable(text: str | bytes) -> str:
    """Escape a text to one line that is safe on a terminal (`\\n`, `\\x1b`)."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str | bytes, limit: int = 120) -> str:
    """Escape a text and truncate it to `limit` characters, marking the cut."""
    shown = printable(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
