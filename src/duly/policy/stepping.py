"""Which recorded step a call of the running code stands for.

A step is known by its name and a key. The key is what the code gave; else, where a step has
arguments, it follows from them, and equal ones are counted; else it counts the calls of the name.
So a step may be added or moved in a later version of the code, and the repeats in a loop or a
gather are told apart whatever their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from duly.errors import InvalidOption, StepChanged
from duly.model.step import Step, StepKind

LONGEST_NAME = 200
GIVEN = "="
"""How keys begin that the code gave."""


def step_name(value: object, option: str = "name") -> str:
    """A step's name: 1 to 200 printable characters."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable():
        return value
    raise InvalidOption(
        option,
        f"{value!r} is not a step's name: expected 1 to {LONGEST_NAME} printable characters, such "
        'as "charge"',
    )


def given_key(value: object, option: str = "key") -> str:
    """A step's key as the code gave it: a text, a number or a UUID."""
    text = str(value)
    if value is None or not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise InvalidOption(
            option, f"{value!r} cannot tell repeats apart: expected such as an order's id"
        )
    return GIVEN + text


def fingerprint(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The same for equal arguments, in every process; what JSON cannot hold counts by its type."""
    parts = [_encoded(value) for value in args]
    parts += [f"{name}={_encoded(value)}" for name, value in sorted(kwargs.items())]
    return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:16]


def _encoded(value: Any) -> str:
    try:
        return msgspec.json.encode(value, order="sorted").decode()
    except Exception:
        return f"<{type(value).__module__}.{type(value).__qualname__}>"


class StepBook:
    """The recorded steps of a job, and which of them this run has reached."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._steps = {(step.name, step.key): step for step in steps}
        self._reached: set[tuple[str, str]] = set()
        self._calls: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def of_kind(self, kind: StepKind) -> list[Step]:
        """The recorded steps of one kind, in the order they were recorded."""
        return sorted(
            (step for step in self._steps.values() if step.kind is kind),
            key=lambda step: step.number,
        )

    def write(self, step: Step) -> None:
        """Note a step as it is recorded now."""
        self._steps[step.name, step.key] = step

    def reach(
        self, name: str, kind: StepKind, mark: str, key: str | None
    ) -> tuple[str, Step | None]:
        """The key of the next call of `name`, and the step that is recorded for it.

        `mark` is the arguments' fingerprint, or empty where only the calls are counted.
        Raises StepChanged when the name was recorded as another kind of step.
        """
        if key is None:
            count = self._calls[name, mark] = self._calls.get((name, mark), 0) + 1
            key = f"{mark}#{count}" if count > 1 or not mark else mark
        elif (name, key) in self._reached:
            raise StepChanged(
                name,
                f"two calls of one run have the key {key.removeprefix(GIVEN)!r}: give each its own",
            )
        step = self._steps.get((name, key))
        if step is not None and step.kind is not kind:
            raise StepChanged(
                name,
                f"it is recorded as a {step.kind.value} and called as a {kind.value} now: give the "
                "new one another name",
            )
        self._reached.add((name, key))
        return key, step

    def unlike(self, name: str) -> list[Step]:
        """Recorded steps of this name that are known by other arguments, and not reached yet."""
        return [
            step
            for identity, step in self._steps.items()
            if step.name == name and identity not in self._reached and step.key[:1] != GIVEN
        ]

    def passed_over(self) -> list[Step]:
        """Recorded steps that this run has not reached, in the order they were recorded."""
        return sorted(
            (
                step
                for identity, step in self._steps.items()
                if identity not in self._reached and step.kind is not StepKind.VALUE
            ),
            key=lambda step: step.number,
        )

    def sleeps_for_ever(self) -> bool:
        """Whether the last two recorded steps are sleeps that this run has not reached, although
        it has come to a sleep: then their times differ from run to run, and so will the next."""
        last = sorted(self._steps.items(), key=lambda each: each[1].number)[-2:]
        return len(last) == 2 and all(
            step.kind is StepKind.SLEEP and identity not in self._reached for identity, step in last
        )
