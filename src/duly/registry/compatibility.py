"""Whether a result of one declared type can be an argument of another.

Only what is sure to fail is refused: both are stored as JSON, and a worker checks the value itself.
"""

from __future__ import annotations

from typing import Any

from msgspec import inspect as mi

_ARRAYS = (
    mi.ListType,
    mi.VarTupleType,
    mi.SetType,
    mi.FrozenSetType,
    mi.CollectionType,
    mi.TupleType,
)
_OBJECTS = (
    mi.DictType,
    mi.StructType,
    mi.TypedDictType,
    mi.DataclassType,
)
_TEXTS = (
    mi.StrType,
    mi.BytesType,
    mi.ByteArrayType,
    mi.DateTimeType,
    mi.DateType,
    mi.TimeType,
    mi.TimeDeltaType,
    mi.UUIDType,
    mi.DecimalType,
)
_PLAIN = (mi.BoolType, mi.IntType, mi.FloatType, mi.NoneType)
_UNKNOWN = (mi.AnyType, mi.CustomType, mi.RawType, mi.LiteralType, mi.EnumType, mi.ExtType)


def fits(result: Any, parameter: Any) -> bool:
    """Whether some value of the result's type may be one of the parameter's."""
    return _fits(mi.type_info(result), mi.type_info(parameter))


def accepts_null(parameter: Any) -> bool:
    """Whether None is a value of the type."""
    return any(
        isinstance(each, mi.NoneType | mi.AnyType) for each in _options(mi.type_info(parameter))
    )


def items_of(result: Any) -> Any:
    """The type of the items of a list, `Any` when that is not known; None for what is no list."""
    args: tuple[Any, ...] = getattr(result, "__args__", ())
    options = _options(mi.type_info(result))
    if not any(isinstance(each, (*_ARRAYS, *_UNKNOWN)) for each in options):
        return None
    is_list = len(options) == 1 and isinstance(options[0], mi.ListType | mi.VarTupleType)
    return args[0] if is_list and args else Any


def _options(info: mi.Type) -> list[mi.Type]:
    while isinstance(info, mi.Metadata):
        info = info.type
    return list(info.types) if isinstance(info, mi.UnionType) else [info]


def _fits(result: mi.Type, parameter: mi.Type) -> bool:
    return any(
        _fits_one(given, wanted) for given in _options(result) for wanted in _options(parameter)
    )


def _fits_one(given: mi.Type, wanted: mi.Type) -> bool:
    if isinstance(given, _UNKNOWN) or isinstance(wanted, _UNKNOWN):
        return True
    if isinstance(given, _ARRAYS) and isinstance(wanted, _ARRAYS):
        one, two = getattr(given, "item_type", None), getattr(wanted, "item_type", None)
        return one is None or two is None or _fits(one, two)
    if isinstance(given, mi.DictType) and isinstance(wanted, mi.DictType):
        return _fits(given.value_type, wanted.value_type)
    if isinstance(given, _OBJECTS) and isinstance(wanted, _OBJECTS):
        return True
    if isinstance(given, _TEXTS) and isinstance(wanted, _TEXTS):
        return type(given) is type(wanted) or mi.StrType in (type(given), type(wanted))
    if isinstance(given, mi.IntType | mi.DecimalType) and isinstance(
        wanted, mi.FloatType | mi.DecimalType
    ):
        return True
    if isinstance(given, _PLAIN) and isinstance(wanted, _PLAIN):
        return type(given) is type(wanted)
    return not _known(given) or not _known(wanted)


def _known(info: mi.Type) -> bool:
    return isinstance(info, (*_ARRAYS, *_OBJECTS, *_TEXTS, *_PLAIN))
