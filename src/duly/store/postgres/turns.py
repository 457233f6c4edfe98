"""Places for claims, of which there are a few: in a crowd only who has one claims.

A claim sees jobs as they were when it began, and passes over each that somebody else has taken
since. With 32 worker processes on two cores 18 claims were under way at any time, and passing over
what the other 17 had taken was the largest part of each one's work. Who waits for a place begins
when there is one, and sees what has been taken until then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from duly.model.query import Demand
from duly.store.operation import Statement

PLACES = 4
PATIENCE = 1.0
"""For how many seconds a claim waits for a place."""
WITHOUT = 30.0
"""For how many seconds nobody waits after that was in vain: somebody keeps a place, such as one who
was stopped between two halves of a message, or there are too many for turns."""

# The server gives a place back with the transaction, however that ends.
_WAIT = f"""
SELECT set_config('lock_timeout', %(patience)s::text, true), CASE
    {
    " ".join(
        f"WHEN pg_try_advisory_xact_lock(%(places)s::bigint + (%(own)s::integer + {after})"
        f" % {PLACES}) THEN false"
        for after in range(PLACES)
    )
}
    ELSE pg_advisory_xact_lock(%(places)s::bigint + %(own)s::integer) IS NULL END
"""


class Turns:
    """Those of one schema, for workers that want the same jobs."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._from = 0.0

    def wait(self, demand: Demand) -> Statement | None:
        """Waits for a place, which is the transaction's; None where there are no turns for now."""
        if time.monotonic() < self._from:
            return None
        return Statement(
            _WAIT,
            {
                "patience": str(int(PATIENCE * 1000)),
                "places": first_place(self._schema, demand.queues, demand.tasks),
                "own": demand.worker.int % PLACES,
            },
        )

    def give_up(self) -> None:
        """A claim that waited has failed."""
        self._from = time.monotonic() + WITHOUT


@lru_cache
def first_place(schema: str, queues: Sequence[str], tasks: Sequence[str]) -> int:
    """The number of the first of the places; the others follow."""
    wanted = repr(("duly claims", schema, sorted(queues), sorted(tasks)))
    number = int.from_bytes(blake2b(wanted.encode(), digest_size=8).digest(), signed=True)
    return number - number % PLACES
