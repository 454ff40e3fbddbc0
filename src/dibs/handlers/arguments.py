"""A handler's arguments to params and back: bound by name, checked and converted by annotation.

What the annotation says is checked when the task is enqueued, where the mistake is, and again when it runs, because
the task may have been enqueued by somebody else. A datetime, UUID, dataclass or whatever else msgspec knows becomes
JSON on the way in and the annotated type on the way out. Params whose annotation says nothing must be JSON already.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Union, get_type_hints

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers.context import Context

_NAMELESS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class Arguments:
    """The arguments of one function."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind in _NAMELESS:
                raise InvalidValue(
                    f"The handler {name!r} has the parameter {parameter}, which cannot be given by name.",
                    hint="Params are a JSON object: use named parameters, or **params for whatever comes.",
                )

    def to_params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The params of a call, or InvalidValue where they would not fit the function."""
        try:
            given = self._callers_signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidValue(f"{self._name}: {error}.", hint=f"It takes {self._callers_signature}.") from None
        if self._rest is not None:
            rest = given.pop(self._rest, {})
            given = {**given, **rest}
        params = {name: self._to_json(name, value) for name, value in given.items()}
        self._convert(params)
        return params

    def from_params(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        """The keyword arguments of the function for these params, or InvalidValue where they do not fit."""
        arguments = self._convert(params)
        if self.context_name is not None:
            arguments[self.context_name] = context
        return arguments

    @cached_property
    def context_name(self) -> str | None:
        """The parameter that wants the context, if one does."""
        for name, parameter in self._signature.parameters.items():
            if self._hints.get(name) is Context or (name == "ctx" and parameter.annotation is parameter.empty):
                return name
        return None

    def _convert(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            known = msgspec.convert(params, self._shape, str_keys=True)
        except msgspec.ValidationError as error:
            message = f"The params do not fit the handler {self._name!r}: {_plain(str(error))}."
            raise InvalidValue(message, hint=f"It takes {self._callers_signature}.") from None
        arguments = {name: value for name in self._fields if (value := getattr(known, name)) is not msgspec.UNSET}
        if self._rest is not None:
            arguments.update((name, value) for name, value in params.items() if name not in arguments)
        return arguments

    def _to_json(self, name: str, value: Any) -> Any:
        if name not in self._types:
            return value  # the codec says what it may be
        try:
            return msgspec.to_builtins(value, str_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{self._name}: the argument {name} is not JSON: {error}.") from None

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        try:
            return get_type_hints(self._function, include_extras=True)
        except Exception:  # annotations that only a type checker can resolve: nothing is known, nothing is checked
            return {
                name: Context
                for name, parameter in self._signature.parameters.items()
                if str(parameter.annotation).rpartition(".")[2] == "Context"
            }

    @cached_property
    def _callers_signature(self) -> inspect.Signature:
        """The signature without the context, which callers do not give."""
        parameters = self._signature.parameters
        kept = [parameter for name, parameter in parameters.items() if name != self.context_name]
        return self._signature.replace(parameters=kept)

    @cached_property
    def _rest(self) -> str | None:
        """The name of **params, if there is one."""
        kinds = {parameter.kind: name for name, parameter in self._signature.parameters.items()}
        return kinds.get(inspect.Parameter.VAR_KEYWORD)

    @cached_property
    def _fields(self) -> tuple[str, ...]:
        return tuple(name for name in self._callers_signature.parameters if name != self._rest)

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The annotations that msgspec can check."""
        return {name: self._hints[name] for name in self._fields if name in self._hints and _known(self._hints[name])}

    @cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """A struct with a field for each argument; those with a default may be missing."""
        parameters = self._callers_signature.parameters
        required, optional = [], []
        for name in self._fields:
            kind = self._types.get(name, Any)
            if parameters[name].default is inspect.Parameter.empty:
                required.append((name, kind))
            else:
                optional.append((name, Any if kind is Any else Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
        shape = msgspec.defstruct(
            "Params", [*required, *optional], forbid_unknown_fields=self._rest is None, kw_only=True
        )
        return _described(shape)


_describing = threading.Lock()


def _described(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The struct, once msgspec knows all of its types.

    It would find them out at the first conversion, and a second thread that converts meanwhile finds half of them and
    kills the process (seen with msgspec 0.22). One lock for all: two handlers may share the types of their arguments.
    """
    with _describing:
        msgspec.json.Decoder(shape)
    return shape


def _known(annotation: Any) -> bool:
    try:
        msgspec.json.schema(annotation)
    except Exception:  # msgspec raises several kinds for what it cannot describe
        return False
    return annotation is not Any


def _plain(error: str) -> str:
    return error.replace(" - at `$.", " for `").replace(" - at `$`", "")
