"""A task's arguments and results: from Python values to checked JSON bytes, and back.

Arguments are stored as one JSON object by parameter name; `*args` is a list and `**kwargs` an
object under its own name, each only if not empty. An argument that was not passed is not stored:
the default of the code that runs the job applies.

Types are judged as msgspec does in strict mode: text for a number is refused, an integer for a
float is fine, a bool is no integer. Where nothing is declared (no annotation, `Any`, `object`)
only plain JSON values pass; anything else would arrive as something it is not. See
`duly.registry.fidelity`, and `duly.registry.strict_json` for what JSON may hold.
"""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Never, NoReturn

import msgspec
from msgspec import UNSET

from duly.errors import ConfigurationError, InvalidArguments, InvalidInput, InvalidPayload
from duly.registry import declared, fidelity, foreign, strict_json
from duly.registry.schema import mismatch
from duly.registry.strict_json import render_path
from duly.registry.structure import part_at, type_name

_BY_NAME = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
_NOTHING = b"null"
_NO_ARGUMENTS = b"{}"
_ADVICE = "declare a plain type instead, such as that of an id, and load the object in the task"
_QUOTED = re.compile(r"'([^']+)'")
_MESSAGE_PATH = re.compile(r" - at `(\$[^`]*)`$")
_MESSAGE_ARGUMENT = re.compile(r" - at `\$\.(\w+)[^`]*`$")
_NAIVE_DATETIME = re.compile(rb'\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?"')


class ArgumentCodec:
    """Binds, checks, encodes and decodes the arguments of one task.

    Made once per task, from the signature and the type hints of `function`. The first `skip`
    parameters, and those `left_out`, are not arguments: whoever calls the function provides them.

    Raises ConfigurationError, naming function and parameter, if a type hint cannot be resolved
    or its values cannot be stored.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        task_name: str,
        skip: int = 0,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self._task = task_name
        self._function = function
        self._without: dict[frozenset[str], ArgumentCodec] = {}
        signature = inspect.signature(function)
        everything = list(signature.parameters.values())
        hints = declared.hints(function)
        self._parameters = [
            parameter.replace(annotation=hints.get(parameter.name, Parameter.empty))
            for parameter in everything[skip:]
            if parameter.name not in left_out
        ]
        self._signature = inspect.Signature(self._parameters)
        self._shown = f"{getattr(function, '__name__', task_name)}{self._signature}"
        self._required = frozenset(
            parameter.name for parameter in self._parameters if _is_required(parameter)
        )
        # A Struct wants its required fields first; a keyword-only parameter may come later.
        self._fields = sorted(self._parameters, key=lambda each: each.name not in self._required)
        self._names = [parameter.name for parameter in self._fields]
        kinds = [parameter.kind for parameter in self._parameters]
        self._positional = kinds.count(Parameter.POSITIONAL_OR_KEYWORD)
        in_order = self._names == list(self._signature.parameters)
        self._simple = in_order and set(kinds) <= _BY_NAME
        # A Struct has names of its own, which are all like __init__.
        odd = any(name.startswith("__") for name in self._names)
        self._attributes = [f"p{index}" if odd else name for index, name in enumerate(self._names)]
        self._binds_itself = self._simple and not odd
        self._collector = next(
            (
                attribute
                for attribute, parameter in zip(self._attributes, self._fields, strict=True)
                if parameter.kind is Parameter.VAR_KEYWORD
            ),
            None,
        )
        self._taken = frozenset(
            parameter.name for parameter in everything if parameter.kind in _BY_NAME
        )
        self._struct = self._make_struct(function)
        self._encoder = msgspec.json.Encoder(enc_hook=foreign.encode_hook)
        self._decoder = msgspec.json.Decoder(self._struct, dec_hook=foreign.decode_hook)
        try:
            self._schema = declared.schema(self._struct) | {"title": task_name}
        except Exception as error:
            raise ConfigurationError(
                f"{type_name(function)}: its arguments have no JSON Schema: {error}"
            ) from error
        self._has_datetimes = b'"date-time"' in msgspec.json.encode(self._schema)
        self._has_objects = "$defs" in self._schema

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The arguments of a call as JSON bytes that are sure to decode to equal values.

        Raises InvalidArguments, naming the argument and the path within it, when the call does
        not fit the signature or a value its declared type; InvalidPayload when a value lies
        outside the strict profile of JSON.
        """
        if not args and not kwargs and not self._required:
            return _NO_ARGUMENTS
        given = self._bind(args, kwargs)
        try:
            data = self._encoder.encode(given)
        except Exception as error:
            raise self._unencodable(given, error) from error
        strict_json.verify(data, given)
        arrived = self._read(data, given)
        if given != arrived:
            try:
                fidelity.compare(given, arrived)
            except fidelity.Changed as changed:
                raise self._refusal(changed.steps[::-1], changed.problem) from None
        self._refuse_naive_datetimes(data)
        return data

    def encode_object(self, arguments: Mapping[str, object]) -> bytes:
        """Arguments by name, as plain JSON values, checked like those of a call.

        Texts stand for what JSON has no type for: a UUID, a datetime with its offset, base64
        for bytes. Raises InvalidArguments or InvalidPayload, as `encode` does.
        """
        data = strict_json.encode(dict(arguments))
        self._read(data)
        if self._has_objects:
            self._check_by_schema(data)
        self._refuse_naive_datetimes(data)
        return data

    def decode(self, data: bytes | str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Stored arguments as what the function is to be called with, `skip` ones excepted.

        Raises InvalidArguments when they do not, or no longer, fit the code.
        """
        stored = self._read(data)
        if not self._names:
            return (), {}
        values = msgspec.structs.astuple(stored)
        passed = {
            name: value
            for name, value in zip(self._names, values, strict=True)
            if value is not UNSET
        }
        return ((), passed) if self._simple else self._call(passed)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, unchecked; InvalidArguments when the call does not fit
        the signature."""
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise self._misfitting_call(error) from None

    def encode_rest(self, arguments: Mapping[str, Any], provided: frozenset[str]) -> bytes:
        """Encode bound arguments except for those that are provided later."""
        codec = self._without.get(provided) if provided else self
        if codec is None:
            codec = ArgumentCodec(self._function, self._task, left_out=provided)
            self._without[provided] = codec
        rest = {name: value for name, value in arguments.items() if name not in provided}
        call = inspect.BoundArguments(codec._signature, OrderedDict(rest))
        return codec.encode(call.args, call.kwargs)

    @property
    def names(self) -> frozenset[str]:
        """The names of all parameters."""
        return frozenset(self._names)

    def declared(self, name: str) -> Any:
        """The declared type of a parameter that can be passed by name, `Any` without one; None
        when there is no such parameter."""
        parameter = self._signature.parameters.get(name)
        if parameter is None or parameter.kind not in _BY_NAME:
            return None
        return Any if parameter.annotation is Parameter.empty else parameter.annotation

    def first_parameter(self) -> str | None:
        """The name of the first argument that can be given by name."""
        named = (each.name for each in self._parameters if each.kind in _BY_NAME)
        return next(named, None)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the stored object. Not to be changed."""
        return self._schema

    def _make_struct(self, function: Callable[..., Any]) -> type[msgspec.Struct]:
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for attribute, parameter in zip(self._attributes, self._fields, strict=True):
            stored = declared.stored_type(parameter)
            if reason := declared.unstorable(stored):
                raise ConfigurationError(
                    f"{type_name(function)}, parameter {parameter.name!r}: {reason}: {_ADVICE}"
                )
            required = parameter.name in self._required
            fields.append((attribute, stored) if required else (attribute, stored, UNSET))
        return msgspec.defstruct(
            "Arguments",
            fields,
            rename=dict(zip(self._attributes, self._names, strict=True)),
            frozen=True,
            forbid_unknown_fields=True,
            omit_defaults=True,
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Struct:
        if self._binds_itself and len(args) <= self._positional:
            try:
                return self._struct(*args, **kwargs)
            except TypeError:
                # Not in a way that tells people what is wrong with the call.
                pass
        try:
            passed = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self._misfitting_call(error) from None
        return self._struct(*[passed.get(name, UNSET) for name in self._names])

    def _read(self, data: bytes | str, given: msgspec.Struct | None = None) -> msgspec.Struct:
        """The stored object in its declared types; InvalidArguments if it does not fit."""
        try:
            arrived = self._decoder.decode(data)
        except Exception as error:
            raise self._misfit(data, error, given) from error
        if self._collector is not None:
            for name in self._taken.intersection(getattr(arrived, self._collector) or ()):
                raise self._refusal([name], "it is given twice, by name and among the others")
        return arrived

    def _call(self, passed: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call for a signature in which some arguments can be passed by position only."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        follows = any(
            parameter.kind is Parameter.VAR_POSITIONAL and parameter.name in passed
            for parameter in self._parameters
        )
        for parameter in self._parameters:
            name, kind = parameter.name, parameter.kind
            if kind is Parameter.POSITIONAL_ONLY or (
                kind is Parameter.POSITIONAL_OR_KEYWORD and follows
            ):
                # One that was left out may be followed by one that was not.
                positional.append(passed.get(name, parameter.default))
            elif kind is Parameter.VAR_POSITIONAL:
                positional.extend(passed.get(name, ()))
            elif kind is Parameter.VAR_KEYWORD:
                named.update(passed.get(name, {}))
            elif name in passed:
                named[name] = passed[name]
        return tuple(positional), named

    def _refuse_naive_datetimes(self, data: bytes) -> None:
        if self._has_datetimes and _NAIVE_DATETIME.search(data):
            self._check_by_schema(data)

    def _check_by_schema(self, data: bytes) -> None:
        found = mismatch(strict_json.decode(data), self._schema)
        if found is not None:
            raise self._refusal(*found)

    def _unencodable(self, given: msgspec.Struct, error: Exception) -> InvalidInput:
        steps, cause = strict_json.culprit(self._encoder, given, error)
        if isinstance(cause, UnicodeEncodeError | RecursionError):
            return InvalidPayload(render_path(steps), strict_json.describe(cause))
        return self._refusal(steps, str(cause))

    def _misfit(
        self, data: bytes | str, error: Exception, given: msgspec.Struct | None
    ) -> InvalidArguments:
        """The error for arguments that do not decode to their types.

        The schema finds the exact path; what only a type can judge is told in msgspec's words.
        """
        try:
            found = mismatch(strict_json.decode(data), self._schema)
        except InvalidPayload as outside:
            return InvalidArguments(self._task, str(outside))
        if found is None:
            where = _MESSAGE_ARGUMENT.search(str(error))
            return InvalidArguments(self._task, str(error), where and where[1])
        steps, problem = found
        value = part_at(given, steps)
        if given is not None and type(value).__module__ != "builtins":
            problem += f" (the JSON form of a {type_name(type(value))})"
        return self._refusal(steps, problem)

    def _misfitting_call(self, error: TypeError) -> InvalidArguments:
        named = _QUOTED.search(str(error))
        return InvalidArguments(
            self._task, f"{error}; the signature is {self._shown}", named and named[1]
        )

    def _refusal(self, steps: list[str | int], problem: str) -> InvalidArguments:
        inside = f"{render_path(steps)}: " if len(steps) > 1 else ""
        return InvalidArguments(self._task, f"{inside}{problem}", str(steps[0]) if steps else None)


class ResultCodec:
    """Encodes and decodes the result of one task, by the function's return annotation.

    A result arrives in its declared type; what has none (no annotation, `Any`) arrives as plain
    JSON: a tuple as a list, a datetime as text. Raises ConfigurationError if the annotation
    cannot be resolved or its values cannot be stored.
    """

    def __init__(self, function: Callable[..., Any], task_name: str) -> None:
        kind = declared.hints(function).get("return", Any)
        kind = Any if kind in (NoReturn, Never) else kind
        if reason := declared.unstorable(kind):
            raise ConfigurationError(
                f"{type_name(function)}: its result cannot be kept: {reason}: return a plain "
                "value, such as an id, or nothing"
            )
        self._task = task_name
        self.declared = kind
        """The declared type of the result, `Any` without one."""
        self._decoder = msgspec.json.Decoder(kind, dec_hook=foreign.decode_hook)
        try:
            self._may_be_nothing = self._decoder.decode(_NOTHING) is None
        except Exception:
            self._may_be_nothing = False

    def encode(self, value: object) -> bytes:
        """The result as JSON bytes that decode to the declared type; else InvalidPayload."""
        if value is None and self._may_be_nothing:
            return _NOTHING
        data = strict_json.encode(value)
        self.decode(data)
        return data

    def decode(self, data: bytes | str) -> Any:
        """The stored result in its declared type; InvalidPayload when it does not fit."""
        try:
            return self._decoder.decode(data)
        except Exception as error:
            message = str(error)
            where = _MESSAGE_PATH.search(message)
            raise InvalidPayload(
                where[1] if where else "$",
                f"the result of task {self._task!r} does not fit its annotation: "
                f"{_MESSAGE_PATH.sub('', message)}",
            ) from error


def _is_required(parameter: Parameter) -> bool:
    collects = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return not collects and parameter.default is Parameter.empty
