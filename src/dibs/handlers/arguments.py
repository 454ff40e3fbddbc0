"""Conversion between a handler's arguments and the params of a task: by name, checked by annotation.

Arguments are checked against their annotations when the task is enqueued, which is where a mistake is made, and again
when the task runs, because another program may have enqueued it. A datetime, dataclass, Pydantic model or any other
type that can be converted becomes JSON in the params and the annotated type in the call. Params without such an
annotation must be JSON already.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Union

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers import values
from dibs.handlers.context import Context

_WITHOUT_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)

_SCALARS = (int, str, float, bool, type(None))
"""Types whose values are JSON as they are."""


class Arguments:
    """Converts the arguments of one function."""

    noun = "parameter"
    """What the name of a param is a name of, for messages."""

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

    def check(self) -> None:
        """Raise InvalidValue if an argument cannot be stored. Annotations that cannot be resolved yet, because they
        name what a module declares below the handler, are not checked."""
        if values.annotations_of(self._function) is not None:
            _ = self._types

    def has(self, name: str) -> bool:
        """True if the function takes an argument of this name."""
        return (name in self._signature.parameters and name != self._rest) or self._rest is not None

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
        arguments = self._convert(params)
        if self._models:
            params.update((name, values.to_json(arguments[name])) for name in self._models.intersection(params))
        return params

    def from_params(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        """The keyword arguments for these params. Raises InvalidValue if they do not match the function."""
        arguments = self._convert(params)
        if self.context_name is not None:
            arguments[self.context_name] = context
        return arguments

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the params."""
        from dibs.handlers.params_schema import params_schema  # needed when a worker starts, and not by other programs

        required, optional = self._required_and_optional
        return params_schema(required, optional, open_ended=self._rest is not None)

    @cached_property
    def context_name(self) -> str | None:
        """The name of the parameter that takes the context; None if there is none."""
        for name, parameter in self._signature.parameters.items():
            if self._hints.get(name) is Context or (name == "ctx" and parameter.annotation is parameter.empty):
                return name
        return None

    def _convert(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            known = values.from_json(params, self._shape)
        except msgspec.ValidationError as error:
            message = f"The params do not match the handler {self._name!r}: {values.plain_message(error)}."
            raise InvalidValue(message, hint=f"It takes {self._callers_signature}.") from None
        arguments = {name: value for name in self._fields if (value := getattr(known, name)) is not msgspec.UNSET}
        if self._rest is not None:
            arguments.update((name, value) for name, value in params.items() if name not in arguments)
        return arguments

    def _to_json(self, name: str, value: Any) -> Any:
        if name not in self._types or type(value) in _SCALARS:
            return value  # json_values checks that it is JSON
        try:
            return values.to_sorted_json(value) if name in self._sets else values.to_json(value)
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{self._name}: the argument {name} is not JSON: {error}.") from None

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        if (hints := values.annotations_of(self._function)) is not None:
            return hints
        return {  # annotations that only a type checker can resolve are not checked
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
        """The annotations by which arguments are converted, by argument. Raises InvalidValue for an argument that
        cannot be stored."""
        given = {name: self._hints[name] for name in self._fields if name in self._hints}
        kinds = {name: values.checked(self._name, f"the argument {name}", kind) for name, kind in given.items()}
        return {name: kind for name, kind in kinds.items() if kind is not Any}

    @cached_property
    def _models(self) -> frozenset[str]:
        """The arguments with Pydantic models. What is stored is the model, not what its validators made it from."""
        return frozenset(name for name, kind in self._types.items() if values.has_models(kind))

    @cached_property
    def _sets(self) -> frozenset[str]:
        """The arguments with sets."""
        return frozenset(name for name, kind in self._types.items() if values.has_sets(kind))

    @property
    def _required_and_optional(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The types of the arguments without a default, and of those with one; Any for plain JSON."""
        parameters = self._callers_signature.parameters
        kinds = {name: self._types.get(name, Any) for name in self._fields}
        required = [name for name in kinds if parameters[name].default is inspect.Parameter.empty]
        return {name: kinds.pop(name) for name in required}, kinds

    @cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """A struct with a field for each argument; fields of arguments with a default are optional."""
        required, given = self._required_and_optional
        optional = [
            (name, Any if kind is Any else Union[kind, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007
            for name, kind in given.items()
        ]
        shape = msgspec.defstruct(
            "Params", [*required.items(), *optional], forbid_unknown_fields=self._rest is None, kw_only=True
        )
        inspected: type[msgspec.Struct] = values.inspected(shape)
        return inspected
