"""From an exception to what is stored of it."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from duly.model.attempt import Failure
from duly.runtime.text import storable

LONGEST_MESSAGE = 4_000
LONGEST_TRACEBACK = 16_000
_OWN_CODE = str(Path(__file__).parent)


def failure_of(error: BaseException) -> Failure:
    """Type, message, traceback and fingerprint; it never raises itself."""
    kind = storable(type(error).__name__)
    frames = _frames(error.__traceback__)
    return Failure(
        type=kind,
        message=storable(_message(error))[:LONGEST_MESSAGE],
        traceback=storable(_text(error))[-LONGEST_TRACEBACK:],
        fingerprint=_fingerprint(kind, frames),
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__}: its text cannot be shown>"


def _text(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _beyond_own(error)))
    except Exception:
        return f"{type(error).__name__}: its traceback cannot be shown"


def _beyond_own(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of the worker itself at its start."""
    current = error.__traceback__
    while current is not None and _is_own(current.tb_frame):
        current = current.tb_next
    return current


def _frames(start: TracebackType | None) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(start) if not _is_own(frame)]


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN_CODE)


def _fingerprint(kind: str, frames: list[FrameType]) -> str:
    """The same for the same fault, also after lines have moved and in another folder."""
    places = [f"{Path(f.f_code.co_filename).name}:{f.f_code.co_name}" for f in frames[-6:]]
    return hashlib.sha256("\n".join([kind, *places]).encode(errors="replace")).hexdigest()[:16]
