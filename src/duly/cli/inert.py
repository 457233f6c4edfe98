"""Text from users, shown so that it cannot act: no escape sequences, no reordering, no lines.

Task names, arguments, error messages and notes come from whoever submits jobs. On an operator's
terminal a control character in them could move the cursor, a right-to-left mark could change what
a line seems to say, and a newline could forge another row.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HARMLESS = ("L", "M", "N", "P", "S", "Zs")
_SUSPECT = re.compile(r"[^ -~]")


def inert(text: str) -> str:
    """The text as one line: whatever could act is written as an escape such as \\x1b."""
    return _SUSPECT.sub(lambda match: _unless_harmless(match[0], _readable), text)


def inert_block(text: str) -> str:
    """The same for a text of several lines, such as a traceback: newlines stay."""
    return "\n".join(inert(line.replace("\t", "    ")) for line in text.split("\n"))


def inert_json(text: str) -> str:
    """JSON text that means the same, with whatever could act written as \\uXXXX.

    Such characters occur inside strings only; the newlines between values stay.
    """
    return "\n".join(
        _SUSPECT.sub(lambda match: _unless_harmless(match[0], _utf16), line)
        for line in text.split("\n")
    )


def _unless_harmless(character: str, escape: Callable[[str], str]) -> str:
    harmless = unicodedata.category(character).startswith(_HARMLESS)
    return character if harmless else escape(character)


def _readable(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
