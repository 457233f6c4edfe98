"""What an application is called unless a setting says so: by the package that makes the App."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


def calling_package(made: object) -> str:
    """The top-level package of the code that makes the object, called from its `__init__`.

    The same for a script, `python -m` and an import of it; "main" for code typed by hand.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_constructor(frame, made):
        frame = frame.f_back
    name = "__main__" if frame is None else str(frame.f_globals.get("__name__", "__main__"))
    if frame is not None and name == "__main__":
        spec, file = frame.f_globals.get("__spec__"), frame.f_globals.get("__file__")
        name = spec.name if spec is not None else Path(file).stem if file else "main"
    return _NOT_IN_NAMES.sub("_", name.partition(".")[0])[:128].lstrip("-") or "main"


def _is_constructor(frame: FrameType, made: object) -> bool:
    """Whether the frame is an `__init__` of the object, its own or that of a derived class."""
    return frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is made
