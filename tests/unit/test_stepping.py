"""Which recorded step a call stands for."""

from __future__ import annotations

from uuid import UUID

import pytest

from duly.errors import InvalidOption, StepChanged
from duly.model.step import Step, StepKind, StepState
from duly.policy.stepping import StepBook, fingerprint, given_key, step_name

JOB = UUID(int=7)
CALL, VALUE = StepKind.CALL, StepKind.VALUE


def recorded(name: str, key: str, number: int = 1, kind: StepKind = CALL) -> Step:
    """A step that is done."""
    return Step(
        job_id=JOB, name=name, key=key, kind=kind, state=StepState.DONE, number=number, attempt=1
    )


def test_the_order_of_calls_does_not_matter() -> None:
    marks = [fingerprint((number,), {}) for number in range(3)]
    steps = [recorded("send", mark, number) for number, mark in enumerate(marks)]
    book = StepBook(steps)
    for number in (2, 0, 1):
        assert book.reach("send", CALL, marks[number], None) == (marks[number], steps[number])
    assert book.passed_over() == []


def test_equal_calls_are_counted() -> None:
    mark = fingerprint((1,), {})
    book = StepBook([recorded("send", mark), recorded("send", f"{mark}#2")])
    keys = [book.reach("send", CALL, mark, None) for _ in range(3)]
    assert [key for key, _ in keys] == [mark, f"{mark}#2", f"{mark}#3"]
    assert [step is None for _, step in keys] == [False, False, True]


def test_values_are_counted_by_name() -> None:
    book = StepBook()
    assert [book.reach("value:now", VALUE, "", None)[0] for _ in range(2)] == ["#1", "#2"]


def test_a_given_key_is_all_that_counts() -> None:
    step = recorded("charge", given_key(42))
    book = StepBook([step])
    assert book.reach("charge", CALL, "whatever", given_key("42")) == ("=42", step)
    with pytest.raises(StepChanged, match="two calls of one run have the key '42'"):
        book.reach("charge", CALL, "whatever", given_key(42))


def test_another_kind_is_refused() -> None:
    book = StepBook([recorded("sleep", "x", kind=StepKind.SLEEP)])
    with pytest.raises(StepChanged, match="recorded as a sleep and called as a call now"):
        book.reach("sleep", CALL, "x", None)


def test_other_arguments_are_noticed_until_their_step_is_reached() -> None:
    book = StepBook([recorded("send", "old"), recorded("send", given_key("k"), 2)])
    assert book.reach("send", CALL, "new", None) == ("new", None)
    assert [step.key for step in book.unlike("send")] == ["old"]
    book.reach("send", CALL, "old", None)
    assert book.unlike("send") == []


def test_what_was_passed_over_is_in_order() -> None:
    book = StepBook(
        [recorded("b", "x", 2), recorded("a", "x", 1), recorded("value:now", "#1", 3, VALUE)]
    )
    assert [step.name for step in book.passed_over()] == ["a", "b"]


def test_fingerprints_are_of_values_and_stable() -> None:
    assert fingerprint((1, "a"), {"b": 2, "c": 3}) == fingerprint((1, "a"), {"c": 3, "b": 2})
    assert fingerprint((1,), {}) != fingerprint(("1",), {})
    assert fingerprint(({"a": 1, "b": 2},), {}) == fingerprint(({"b": 2, "a": 1},), {})
    assert fingerprint((object(),), {}) == fingerprint((object(),), {})


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", None, 7])
def test_bad_names(name: object) -> None:
    with pytest.raises(InvalidOption, match='such as "charge"'):
        step_name(name)
    with pytest.raises(InvalidOption, match="cannot tell repeats apart"):
        given_key(name if name != 7 else None)
