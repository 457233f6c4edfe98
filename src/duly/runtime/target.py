"""Finding the app that a name such as `shop.jobs:app` stands for, in a worker's process.

Whoever started the process has checked the name already, and says what is wrong with it.
"""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from pathlib import Path
from typing import Any


def load_target(target: str, url: str | None) -> Any:
    """The app that MODULE:name names; the working directory is searched first.

    With a `url` it works on that database, whatever the code names.
    """
    module, _, path = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    app: Any = reduce(getattr, path.split("."), importlib.import_module(module))
    if url is not None and app.config.url != url:
        app.redirect(url)
    return app
