"""Conversion between a handler's arguments and the params of a task: by name, checked by annotation.

Arguments are checked against their annotations when the task is enqueued, which is where a mistake is made, and again
when the task runs, because another program may have enqueued it. A datetime, UUID, dataclass or any other type that
msgspec supports becomes JSON in the params and the annotated type in the call. Params without a usable annotation must
be JSON already.
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

_WITHOUT_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class Arguments:
    """Converts the arguments of one function."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind in _WITHOUT_NAME:
                raise InvalidValue(
                    f"The handler {name!r} has the parameter {parameter}, which cannot be given by name.",
                    hint="Params are a JSON object: use named parameters, or **params for arbitrary names.",
                )

    def to_params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The params of a call. Raises InvalidValue if the arguments do not match the function."""
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
        """The keyword arguments for these params. Raises InvalidValue if they do not match the function."""
        arguments = self._convert(params)
        if self.context_name is not None:
            arguments[self.context_name] = context
        return arguments

    @cached_property
    def context_name(self) -> str | None:
        """The name of the parameter that takes the context; None if there is none."""
        for name, parameter in self._signature.parameters.items():
            if self._hints.get(name) is Context or (name == "ctx" and parameter.annotation is parameter.empty):
                return name
        return None

    def _convert(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            known = msgspec.convert(params, self._shape, str_keys=True)
        except msgspec.ValidationError as error:
            message = f"The params do not match the handler {self._name!r}: {_plain_message(str(error))}."
            raise InvalidValue(message, hint=f"It takes {self._callers_signature}.") from None
        arguments = {name: value for name in self._fields if (value := getattr(known, name)) is not msgspec.UNSET}
        if self._rest is not None:
            arguments.update((name, value) for name, value in params.items() if name not in arguments)
        return arguments

    def _to_json(self, name: str, value: Any) -> Any:
        if name not in self._types:
            return value  # the codec checks that it is JSON
        try:
            return msgspec.to_builtins(value, str_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{self._name}: the argument {name} is not JSON: {error}.") from None

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        try:
            return get_type_hints(self._function, include_extras=True)
        except Exception:  # annotations that only a type checker can resolve are not checked
            return {
                name: Context
                for name, parameter in self._signature.parameters.items()
                if str(parameter.annotation).rpartition(".")[2] == "Context"
            }

    @cached_property
    def _callers_signature(self) -> inspect.Signature:
        """The signature without the context, which callers do not pass."""
        parameters = self._signature.parameters
        kept = [parameter for name, parameter in parameters.items() if name != self.context_name]
        return self._signature.replace(parameters=kept)

    @cached_property
    def _rest(self) -> str | None:
        """The name of the **params parameter; None if there is none."""
        kinds = {parameter.kind: name for name, parameter in self._signature.parameters.items()}
        return kinds.get(inspect.Parameter.VAR_KEYWORD)

    @cached_property
    def _fields(self) -> tuple[str, ...]:
        return tuple(name for name in self._callers_signature.parameters if name != self._rest)

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The annotations that msgspec can check, by argument."""
        return {
            name: self._hints[name] for name in self._fields if name in self._hints and _can_check(self._hints[name])
        }

    @cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """A struct with a field for each argument; fields of arguments with a default are optional."""
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
        return _inspected(shape)


_inspect_lock = threading.Lock()


def _inspected(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Let msgspec inspect the types of the struct under a lock, and return the struct.

    Otherwise msgspec inspects them in the first conversion, and a second thread that converts at the same time sees
    half of them and crashes the process (seen with msgspec 0.22). All handlers share the lock, because two handlers may
    share types.
    """
    with _inspect_lock:
        msgspec.json.Decoder(shape)
    return shape


def _can_check(annotation: Any) -> bool:
    try:
        msgspec.json.schema(annotation)
    except Exception:  # msgspec raises several types of errors for unsupported annotations
        return False
    return annotation is not Any


def _plain_message(error: str) -> str:
    return error.replace(" - at `$.", " for `").replace(" - at `$`", "")
