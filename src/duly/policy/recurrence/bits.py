"""Sets of small integers as the bits of one integer: value v is a member when bit v is set.

A set of minutes, of days of a month, or of all seconds of a day (86,400 bits) is then one frozen,
hashable value, and union, intersection, shifting and counting are single operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def bits_of(values: Iterable[int]) -> int:
    """The set that holds these values."""
    members = 0
    for value in values:
        members |= 1 << value
    return members


def all_bits(low: int, high: int) -> int:
    """The set of all values from low to high, both included."""
    return (1 << (high + 1)) - (1 << low)


def values_of(members: int) -> Iterator[int]:
    """The values of a set, in rising order."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def first_from(members: int, value: int) -> int:
    """The least member that is not below `value`, or -1."""
    rest = members >> value
    return value + (rest & -rest).bit_length() - 1 if rest else -1


def last_up_to(members: int, value: int) -> int:
    """The greatest member that is not above `value`, or -1."""
    return (members & ((2 << value) - 1)).bit_length() - 1


def count_below(members: int, value: int) -> int:
    """How many members are below `value`."""
    return (members & ((1 << value) - 1)).bit_count()


def repeated(period: int, length: int) -> int:
    """The multiples of `period` below `length` (0, period, 2 * period, ...)."""
    members, covered = 1, period
    while covered < length:
        members |= members << covered
        covered *= 2
    return members & ((1 << length) - 1)
