"""From what a person types to a job's id: the whole id, or its beginning where that is enough."""

from __future__ import annotations

import re
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
    """The id that `text` is, or the one that begins with it.

    A whole id is not looked up. InvalidOption when the text is no id, or the beginning of none
    or of several.
    """
    digits = text.strip().lower().replace("-", "")
    if not _BEGINNING.fullmatch(digits) or not SHORTEST_PREFIX <= len(digits) <= _DIGITS:
        raise InvalidOption("job id", f"{text!a} is not one: {_EXAMPLE}")
    if len(digits) == _DIGITS:
        return UUID(digits)
    first = UUID(digits.ljust(_DIGITS, "0"))
    last = UUID(digits.ljust(_DIGITS, "f"))
    # Ids are read from above: whatever lies between `first` and `last` comes at once.
    above = None if last.int + 1 == 1 << 128 else UUID(int=last.int + 1)
    found = [job.id for job in store.run(store.find(JobFilter(), 3, above)) if job.id >= first]
    if not found:
        raise InvalidOption("job id", f"no job's id begins with {text!a}")
    if len(found) > 1:
        some = ", ".join(str(each) for each in found[:2])
        raise InvalidOption(
            "job id", f"several jobs' ids begin with {text!a}, among them {some}: give more of it"
        )
    return found[0]
