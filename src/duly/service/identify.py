"""From what a person types to the id of a job or a flow: all of it, or enough of its beginning."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from duly.errors import InvalidOption
from duly.model.query import JobFilter
from duly.store.protocol import Store

SHORTEST_PREFIX = 8
_DIGITS = 32
_BEGINNING = re.compile(r"[0-9a-f]*")
_EXAMPLE = (
    "expected an id such as '0197c1e0-7d2c-7000-8000-0123456789ab', or its beginning with "
    f"{SHORTEST_PREFIX} digits or more"
)


def identify(store: Store, text: str) -> UUID:
    """The id of a job that `text` is, or the one that begins with it.

    A whole id is not looked up. InvalidOption when the text is no id, or the beginning of none
    or of several.
    """

    def first_below(above: UUID | None) -> list[UUID]:
        return [job.id for job in store.run(store.find(JobFilter(), 3, above))]

    return _identified("job", text, first_below)


def identify_flow(store: Store, text: str) -> UUID:
    """The same for a flow."""

    def first_below(above: UUID | None) -> list[UUID]:
        return [flow.id for flow in store.run(store.flows(3, before=above))]

    return _identified("flow", text, first_below)


def _identified(kind: str, text: str, first_below: Callable[[UUID | None], list[UUID]]) -> UUID:
    digits = text.strip().lower().replace("-", "")
    if not _BEGINNING.fullmatch(digits) or not SHORTEST_PREFIX <= len(digits) <= _DIGITS:
        raise InvalidOption(f"{kind} id", f"{text!a} is not one: {_EXAMPLE}")
    if len(digits) == _DIGITS:
        return UUID(digits)
    first = UUID(digits.ljust(_DIGITS, "0"))
    last = UUID(digits.ljust(_DIGITS, "f"))
    # Ids are read from above: whatever lies between `first` and `last` comes at once.
    above = None if last.int + 1 == 1 << 128 else UUID(int=last.int + 1)
    found = [each for each in first_below(above) if each >= first]
    if not found:
        raise InvalidOption(f"{kind} id", f"no {kind}'s id begins with {text!a}")
    if len(found) > 1:
        some = ", ".join(str(each) for each in found[:2])
        raise InvalidOption(
            f"{kind} id",
            f"several {kind}s' ids begin with {text!a}, among them {some}: give more of it",
        )
    return found[0]
