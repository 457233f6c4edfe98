"""Text that every database can hold."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text with NUL characters and lone surrogates written out."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
