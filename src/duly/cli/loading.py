"""From MODULE:NAME to the application's App."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from duly.app import App
from duly.errors import ConfigurationError

_EXAMPLE = "expected MODULE:NAME, such as shop.tasks:app"


def load_app(reference: str) -> App:
    """Import the module and return the App under that name in it.

    The working directory is searched first. ConfigurationError says what is wrong: the form of
    the reference, a module that is not there or fails to import, a name that is not in it or is
    not an App.
    """
    module_name, separator, path = reference.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(f"{reference!a} names no app: {_EXAMPLE}")
    if "/" in module_name or module_name.endswith(".py"):
        likely = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(
            f"{module_name!a} is a file, not a module: did you mean {likely}:{path}?"
        )
    found: Any = _import(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(
                f"there is no {path!a} in module {module_name!r}{_others(found)}"
            )
        found = getattr(found, name)
    if not isinstance(found, App):
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        raise ConfigurationError(
            f"{reference} is a {kind.removeprefix('builtins.')}, not a duly.App"
            f"{_others(sys.modules[module_name])}"
        )
    return found


def _import(name: str) -> ModuleType:
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigurationError(
                f"there is no module {missing!r}: looked in {directory}, then where Python finds "
                "its packages; run this in the folder that holds it, or install it"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> ConfigurationError:
    """The import itself failed: name the innermost place outside the import machinery."""
    places = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({error.filename}, line {error.lineno})"
    else:
        where = f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
    said = error.msg if isinstance(error, SyntaxError) else error
    return ConfigurationError(f"importing {name!r} failed: {type(error).__name__}: {said}{where}")


def _others(holder: Any) -> str:
    names = [name for name, value in vars(holder).items() if isinstance(value, App)]
    return f"; an App is there under {', '.join(map(repr, names))}" if names else ""
