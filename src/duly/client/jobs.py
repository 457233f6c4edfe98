"""Many jobs in the hands of application code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from duly.client.job import Job

if TYPE_CHECKING:
    from duly.client.client import Client
    from duly.client.prepared import Prepared
    from duly.model.query import Enqueued


class Jobs(Sequence[Job[Any]]):
    """What `enqueue_many` returns: the jobs in the order of their submission, much like a list.

    Each is made when it is first asked for, and is the same from then on: of many that are
    submitted at once most are never looked at.
    """

    __slots__ = ("_answers", "_client", "_made", "_prepared")

    def __init__(
        self, prepared: Sequence[Prepared[Any]], answers: Sequence[Enqueued], client: Client
    ) -> None:
        self._prepared = prepared
        self._answers = answers
        self._client = client
        self._made: list[Job[Any] | None] = [None] * len(answers)

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, place: int) -> Job[Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job[Any]]: ...
    def __getitem__(self, place: int | slice) -> Job[Any] | list[Job[Any]]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        job = self._made[place]
        if job is None:
            decode = self._prepared[place].decode
            job = self._made[place] = Job(self._answers[place], self._client, decode)
        return job

    def __add__(self, others: Sequence[Job[Any]]) -> list[Job[Any]]:
        return [*self, *others]

    def __radd__(self, others: Sequence[Job[Any]]) -> list[Job[Any]]:
        return [*others, *self]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Jobs) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} jobs>"
