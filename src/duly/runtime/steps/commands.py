"""What a conversation about a step can ask for, and how it can end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from duly.control import TimeLimitExceeded
from duly.model.step import StepWrite
from duly.runtime.steps.port import Request

T = TypeVar("T")


class Suspended(BaseException):
    """Raised in a task to end its attempt while it waits. Not for user code to catch."""


class StepTimeLimit(TimeLimitExceeded):
    """A step ran for longer than its own time limit."""


class Unstorable(Exception):
    """What a step's function returned cannot be recorded. Another try would have its effect again
    and end the same way."""


class Call(msgspec.Struct, frozen=True):
    """Call the step's function. With `commit` its writes and its record go into one transaction,
    and the answer is the recorded step."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    idempotency_key: str
    timeout: float | None = None
    commit: Callable[[Any], StepWrite] | None = None


class Pause(msgspec.Struct, frozen=True):
    """Wait for some seconds, here."""

    seconds: float


class Turn:
    """Let what runs beside this step announce itself."""


class Quiet:
    """Wait until nothing else of this attempt is under way."""


Talk = Generator[Request | Call | Pause | Turn | Quiet, Any, T]
