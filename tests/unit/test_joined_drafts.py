"""Drafts of several submissions that are stored together."""

from __future__ import annotations

from duly.model.identifiers import new_id
from duly.model.job import Alike, joined
from tests.support.stores import draft


def alike(*arguments: str, template: str = "one") -> Alike:
    return Alike(draft(task=template), [new_id().bytes for _ in arguments], arguments)


def test_those_of_one_template_stay_as_they_are() -> None:
    first, template = alike("1", "2"), draft()
    first = Alike(template, first.ids, first.arguments)
    second = Alike(template, [new_id().bytes], ["3"])
    together = joined([first, second])
    assert isinstance(together, Alike)
    assert list(together) == [*first, *second]


def test_those_of_several_keep_their_own() -> None:
    batches = [alike("1", "2"), alike("3", template="other"), [draft(), draft(priority=20)]]
    assert list(joined(batches)) == [each for batch in batches for each in batch]
    assert list(joined(batches[::-1])) == [each for batch in batches[::-1] for each in batch]
