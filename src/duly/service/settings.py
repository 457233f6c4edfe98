"""The settings with where each came from, fit to be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from duly.config import Config, names

_PASSWORD = re.compile(r"(://[^:/?#\s]*):\S*@")
_PASSWORD_PARAMETER = re.compile(r"(?i)\b((?:ssl)?password=)[^&\s'\"]*")
HIDDEN = "***"


class Setting(msgspec.Struct, frozen=True):
    """One value and its origin: argument, DULY_..., a file, or default."""

    name: str
    value: Any
    origin: str


def settings(config: Config) -> list[Setting]:
    """Every setting, passwords hidden."""
    return [
        Setting(name, _shown(getattr(config, name)), config.origins.get(name, "default"))
        for name in names()
    ]


def without_password(text: str) -> str:
    """The text with the passwords of URLs in it hidden."""
    return _PASSWORD_PARAMETER.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}@", text))


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shown(inner) for name, inner in value.items()}
    return without_password(value) if isinstance(value, str) else value
