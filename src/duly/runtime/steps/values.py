"""Steps that are values which would be different the next time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from duly.model.step import StepKind, StepState
from duly.runtime.steps.commands import Talk
from duly.runtime.steps.durable import Durable


def value(durable: Durable, name: str, kind: Any, produce: Callable[[], Any]) -> Talk[Any]:
    """Something that would be different the next time, remembered."""
    name = f"value:{name}"
    key, step = durable.book.reach(name, StepKind.VALUE, "", None)
    if step is None:
        text = msgspec.json.encode(produce()).decode()
        blank = durable.blank(name, key, StepKind.VALUE, None)
        step = yield from durable.record(durable.changed(blank, StepState.DONE, result=text))
    return msgspec.json.decode(step.result or "null", type=kind)


def now(durable: Durable) -> Talk[datetime]:
    """The store's time when the job first came here."""
    key, step = durable.book.reach("value:now", StepKind.VALUE, "", None)
    if step is None:
        blank = durable.blank("value:now", key, StepKind.VALUE, None)
        step = yield from durable.record(durable.changed(blank, StepState.DONE))
    assert step.at is not None
    return step.at
