"""The hooks of an app: functions of the user that run around attempts and enqueues of all its handlers.

The modules of the hooks are imported when a program declares the first one: most programs have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.handlers.lifespan import Lifespan, LifespanFunction
    from dibs.handlers.log_capture import LogCapture
    from dibs.handlers.middleware import AttemptMiddleware, EnqueueMiddleware, MiddlewareStack
    from dibs.handlers.outcome_hooks import HookKind, OutcomeHook, OutcomeHooks

ATTEMPT_EXAMPLE = "`def middleware(ctx, call_next): return call_next()`"


class HookedHandler(Protocol):
    """What the hooks need of a handler."""

    name: str
    function: Callable[..., Any]
    own_middleware: tuple[AttemptMiddleware, ...]
    middleware: MiddlewareStack | None


class AppHooks:
    """The hooks that are declared on an app; its copies (`on`, `signed`) share them."""

    def __init__(self, *, awaited: bool) -> None:
        self.middleware: list[AttemptMiddleware] = []
        self.around_enqueue: list[EnqueueMiddleware] = []
        self.lifespan: Lifespan | None = None
        self.outcome_hooks: dict[HookKind, list[OutcomeHook]] = {}
        self.capture: LogCapture | None = None
        self._awaited = awaited

    def set_capture(self, option: Any) -> None:
        """Capture the logs of all handlers that do not decide by themselves."""
        self.capture = self.capture_for(option)

    def capture_for(self, option: Any) -> LogCapture | None:
        """What a handler with this option captures; without one, what the app says."""
        if option is None:
            return self.capture
        from dibs.handlers.log_capture import capture_of

        return capture_of(option)

    def add_middleware(self, function: AttemptMiddleware, handlers: Iterable[HookedHandler]) -> None:
        """Add a middleware around the attempts of these handlers and of all that are declared later."""
        from dibs.handlers.middleware import check_middleware, stack

        check_middleware(function, "a middleware", ATTEMPT_EXAMPLE)
        layers = [*self.middleware, function]
        stacks = [
            (handler, stack(handler.name, handler.function, [*layers, *handler.own_middleware])) for handler in handlers
        ]
        self.middleware = layers  # only now: a refused middleware changes nothing
        for handler, stacked in stacks:
            handler.middleware = stacked

    def stack_for(
        self, name: str, function: Callable[..., Any], own: tuple[AttemptMiddleware, ...]
    ) -> MiddlewareStack | None:
        """The middleware around the attempts of a new handler; None if there is none."""
        if not self.middleware and not own:
            return None
        from dibs.handlers.middleware import check_middleware, stack

        for each in own:
            check_middleware(each, "a middleware", ATTEMPT_EXAMPLE)
        return stack(name, function, [*self.middleware, *own])

    def set_lifespan(self, function: LifespanFunction) -> None:
        """Set the lifespan of the app."""
        if self.lifespan is not None:
            raise InvalidValue(
                f"The app already has a lifespan: {self.lifespan.name}.",
                hint="Open everything in one lifespan, for example with contextlib.ExitStack.",
            )
        from dibs.handlers.lifespan import Lifespan

        self.lifespan = Lifespan(function)

    def add_outcome_hook(self, option: str, hook: OutcomeHook) -> None:
        """Add a hook after the outcomes of all handlers. `option`: the name of the option of a handler."""
        from dibs.handlers.outcome_hooks import HookKind, checked_hooks

        kind = HookKind(option)
        self.outcome_hooks.setdefault(kind, []).extend(checked_hooks(kind, hook))

    def outcome_hooks_for(self, own: OutcomeHooks) -> OutcomeHooks:
        """The hooks after the outcomes of a handler: those of the app, then its own. Empty if there are none."""
        if not self.outcome_hooks and not own:
            return {}
        from dibs.handlers.outcome_hooks import HookKind

        kinds = [kind for kind in HookKind if kind in self.outcome_hooks or kind in own]
        return {kind: [*self.outcome_hooks.get(kind, ()), *own.get(kind, ())] for kind in kinds}

    def add_around_enqueue(self, function: EnqueueMiddleware) -> None:
        """Add a middleware around the enqueues of the app."""
        from dibs.handlers.middleware import check_middleware, is_async, name_of

        example = "`def middleware(tasks, call_next): return call_next(tasks)`"
        if self._awaited:
            example = "`async def middleware(tasks, call_next): return await call_next(tasks)`"
        check_middleware(function, "an enqueue middleware", example)
        if is_async(function) != self._awaited:
            kind, needed, client = ("plain", "async", "AsyncDibs") if self._awaited else ("async", "plain", "Dibs")
            raise InvalidValue(
                f"The enqueue middleware {name_of(function)} is {kind}, and the enqueues of {client} are {needed}.",
                hint=f"Write {example}.",
            )
        self.around_enqueue.append(function)
