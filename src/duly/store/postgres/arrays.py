"""Lists on their way to the server, lists, ids and moments on their way back, without the driver's
detours.

The driver looks at every item of a list several times and writes it as quoted text. Ours hold
thousands of ids, texts or numbers: these are joined in the binary form of an array here, and lists
of ids and moments are taken apart here. Any other list is left to the driver.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any
from uuid import UUID

import psycopg
from psycopg import postgres
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format
from psycopg.types.array import ArrayBinaryLoader

from duly.model.identifiers import id_of, ids_of

_HEADER = Struct("!iiIii").pack
_HEADER_LENGTH = 20
_PLAIN = Struct("!ii").pack(1, 0)
_LENGTH = Struct("!i").pack
_INTEGER = Struct("!iq").pack
_NULL = _LENGTH(-1)
_ID_LENGTH = _LENGTH(16)
_ID_STEP = 4 + 16
_moments = Struct("!iq").iter_unpack
_FIRST_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
_BOOLEANS = {False: _LENGTH(1) + b"\0", True: _LENGTH(1) + b"\1"}


class Array:
    """A list whose items are all of one type, or None, in its binary form."""

    __slots__ = ("data",)
    item_oid: int

    def __init__(self, values: list[Any]) -> None:
        # One dimension, nulls allowed, the items' type, their number, and counted from 1.
        header = _HEADER(1, 1, self.item_oid, len(values), 1)
        self.data = header + b"".join(self.items(values))

    @staticmethod
    @abstractmethod
    def items(values: list[Any]) -> list[bytes]:
        """Each item with its length before it."""


class _Texts(Array):
    item_oid = postgres.types["text"].oid

    @staticmethod
    def items(values: list[str | None]) -> list[bytes]:
        """See Array."""
        encoded = [None if value is None else value.encode() for value in values]
        return [_NULL if text is None else _LENGTH(len(text)) + text for text in encoded]


class _Ids(Array):
    item_oid = postgres.types["uuid"].oid

    @staticmethod
    def items(values: list[UUID | None]) -> list[bytes]:
        """See Array."""
        return [
            _NULL if value is None else _ID_LENGTH + value.int.to_bytes(16, "big")
            for value in values
        ]


class _BinaryIds(_Ids):
    @staticmethod
    def items(values: list[Any]) -> list[bytes]:
        """See Array."""
        return [_ID_LENGTH, _ID_LENGTH.join(values)]


class _Integers(Array):
    item_oid = postgres.types["int8"].oid

    @staticmethod
    def items(values: list[int | None]) -> list[bytes]:
        """See Array."""
        return [_NULL if value is None else _INTEGER(8, value) for value in values]


class _Booleans(Array):
    item_oid = postgres.types["bool"].oid

    @staticmethod
    def items(values: list[bool | None]) -> list[bytes]:
        """See Array."""
        return [_NULL if value is None else _BOOLEANS[value] for value in values]


_ARRAYS: dict[type, type[Array]] = {str: _Texts, UUID: _Ids, int: _Integers, bool: _Booleans}


def array_of_ids(values: list[bytes]) -> Array:
    """Ids in 16 bytes each, in the form that is sent."""
    return _BinaryIds(values)


def as_array(values: list[Any]) -> Array | list[Any]:
    """The list in the form that is sent, if it is of such items."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if len(kinds) == 1 and (array := _ARRAYS.get(kinds.pop())) is not None:
        return array(values)
    return values


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> Buffer:
        """See psycopg.adapt.Dumper."""
        return obj.data


class _TextDumper(_ArrayDumper):
    oid = postgres.types["text"].array_oid


class _IdDumper(_ArrayDumper):
    oid = postgres.types["uuid"].array_oid


class _IntegerDumper(_ArrayDumper):
    oid = postgres.types["int8"].array_oid


class _BooleanDumper(_ArrayDumper):
    oid = postgres.types["bool"].array_oid


class _IdLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> UUID:
        """See psycopg.adapt.Loader."""
        return id_of(bytes(data))


class _IdsLoader(ArrayBinaryLoader):
    def load(self, data: Buffer) -> list[Any]:
        """See psycopg.adapt.Loader."""
        whole = bytes(data)
        if not whole.startswith(_PLAIN):
            return super().load(data)
        starts = range(_HEADER_LENGTH + 4, len(whole), _ID_STEP)
        return ids_of([whole[start : start + 16] for start in starts])


class _MomentsLoader(ArrayBinaryLoader):
    def load(self, data: Buffer) -> list[Any]:
        """See psycopg.adapt.Loader. In UTC; those that are the same are made once."""
        whole = bytes(data)
        if not whole.startswith(_PLAIN):
            return super().load(data)
        since = [microseconds for _, microseconds in _moments(whole[_HEADER_LENGTH:])]
        made = {each: _FIRST_MOMENT + timedelta(microseconds=each) for each in set(since)}
        return [made[each] for each in since]


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Teach a connection to send and load these."""
    adapters = connection.adapters
    adapters.register_dumper(_Texts, _TextDumper)
    adapters.register_dumper(_Ids, _IdDumper)
    adapters.register_dumper(_BinaryIds, _IdDumper)
    adapters.register_dumper(_Integers, _IntegerDumper)
    adapters.register_dumper(_Booleans, _BooleanDumper)
    adapters.register_loader("uuid", _IdLoader)
    adapters.register_loader(postgres.types["uuid"].array_oid, _IdsLoader)
    adapters.register_loader(postgres.types["timestamptz"].array_oid, _MomentsLoader)
