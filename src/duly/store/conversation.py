"""Several operations, one after another, where the answer to one decides on the next.

Like the verbs themselves they are written once, as generators, and driven by whoever owns the
way to the store, blocking or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from duly.store.operation import Operation

T = TypeVar("T")

Conversation = Generator[Operation[Any], Any, T]


def converse(conversation: Conversation[T], run: Callable[[Operation[Any]], Any]) -> T:
    """Hold the conversation with a store whose operations are run by `run`."""
    try:
        operation = next(conversation)
        while True:
            operation = conversation.send(run(operation))
    except StopIteration as stop:
        result: T = stop.value
        return result


async def converse_async(
    conversation: Conversation[T], arun: Callable[[Operation[Any]], Awaitable[Any]]
) -> T:
    """The same without blocking the event loop."""
    try:
        operation = next(conversation)
        while True:
            operation = conversation.send(await arun(operation))
    except StopIteration as stop:
        result: T = stop.value
        return result
