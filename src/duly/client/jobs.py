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

    __slots__ = ("_answers", "_client", "_in_a_batch", "_made", "_prepared")

    def __init__(
        self,
        client: Client,
        prepared: Sequence[Prepared[Any]],
        answers: Sequence[Sequence[Enqueued]],
        in_a_batch: int,
    ) -> None:
        self._client = client
        self._prepared = prepared
        self._answers = answers
        self._in_a_batch = in_a_batch
        self._made: dict[int, Job[Any]] = {}

    def __len__(self) -> int:
        return len(self._prepared)

    @overload
    def __getitem__(self, place: int) -> Job[Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job[Any]]: ...
    def __getitem__(self, place: int | slice) -> Job[Any] | list[Job[Any]]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        job = self._made.get(number)
        if job is None:
            batch, within = divmod(number, self._in_a_batch)
            answer = self._answers[batch][within : within + 1]
            decode = self._prepared[number].decode
            job = self._made.setdefault(number, Job(answer, self._client, decode))
        return job

    def __add__(self, others: Sequence[Job[Any]]) -> list[Job[Any]]:
        return [*self, *others]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Jobs) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} jobs>"
