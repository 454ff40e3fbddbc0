"""Declarations in code: a worker stores what its program declares before its first claim.

A declaration that is refused is logged, and the worker goes on: the handlers without limits must not wait for a limit
that is wrong, and another program may hold the right key.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from dibs import procedures
from dibs.errors import DibsError, NotAllowed, ScheduleNotFound, StoreError
from dibs.handlers.handler import AnyHandler
from dibs.model.declaration import Declarations, DeclaredKind, RefusedDeclaration, StoredDeclarations
from dibs.model.registry import DeclaredSchema, batches_of_schemas
from dibs.model.schedule import NewSchedule
from dibs.worker.store_access import StoreAccess

logger = logging.getLogger("dibs.worker")

WHAT: dict[DeclaredKind, str] = {
    "limit": "limit",
    "queue": "settings of the queue",
    "type": "limits of the task type",
    "schema": "JSON Schema of the task type",
}


def declare(
    access: StoreAccess,
    declarations: Declarations,
    schedules: Sequence[NewSchedule] = (),
    schemas: Sequence[DeclaredSchema] = (),
) -> None:
    """Store the declarations. Tasks that wait obey the settings at the end."""
    _declare_limits(access, declarations)
    _declare_schemas(access, schemas)
    for schedule in schedules:
        _declare_schedule(access, schedule)


def schemas_of(handlers: Iterable[AnyHandler]) -> list[DeclaredSchema]:
    """The schemas of the handlers. A handler whose schema cannot be made runs without one."""
    return [_schema_of(each) for each in handlers]


def _schema_of(handler: AnyHandler) -> DeclaredSchema:
    try:
        return handler.declared_schema
    except Exception:
        about = {"event": "schema.failed", "task_type": handler.name}
        logger.exception("the JSON Schema of the handler %r could not be made", handler.name, extra=about)
        return DeclaredSchema(handler.name, None)


def _declare_limits(access: StoreAccess, declarations: Declarations) -> None:
    try:
        stored = access.run(access.store.limits.declare(declarations), may_be_refused=True)
    except NotAllowed as error:
        if declarations.any:
            log_not_allowed(error)
        return
    log_refused(stored)
    if stored.unsettled:
        access.follow(procedures.settle(access.store, None, strict=False))


def _declare_schemas(access: StoreAccess, schemas: Sequence[DeclaredSchema]) -> None:
    try:
        for batch in batches_of_schemas(schemas):
            log_refused_schemas(access.run(access.store.registry.declare_schemas(batch), may_be_refused=True))
    except NotAllowed as error:
        if any(each.schema is not None for each in schemas):
            logger.info(
                "the schemas of this program's task types were not registered: %s. A program whose key has the scope "
                "admin can register them: a worker, or app.declare(). register_schemas=False turns this off.",
                error.message.rstrip("."),
                extra={"event": "schemas.refused", "code": error.code},
            )


def _declare_schedule(access: StoreAccess, schedule: NewSchedule) -> None:
    about = {"schedule": schedule.name}
    try:
        access.run(access.store.schedules.put_schedule(schedule, "code"), may_be_refused=True)
    except ScheduleNotFound:
        about["event"] = "schedule.removed"
        logger.info("the schedule %r was removed by hand, and is not set again: its declaration is the same",
                    schedule.name, extra=about)  # fmt: skip
    except DibsError as error:
        if isinstance(error, StoreError) and not isinstance(error, NotAllowed):
            raise
        about["event"] = "schedule.refused"
        logger.error("the schedule %r of the handler was refused: %s", schedule.name, error, extra=about)


def log_not_allowed(error: NotAllowed) -> None:
    """Log that the API key may not store the declarations."""
    logger.error(
        "the limits that this program declares were not stored: %s. A program whose key has the scope admin can store "
        "them: a worker, or app.declare().",
        error.message.rstrip("."),
        extra={"event": "declarations.refused", "code": error.code},
    )


def log_refused_schemas(refused: Sequence[RefusedDeclaration]) -> None:
    """Log the schemas that are not registered."""
    for kind, name, error in refused:
        about = {"event": "declaration.refused", "kind": kind, "name_declared": name}
        logger.warning("the %s %r was not registered: %s", WHAT[kind], name, error, extra=about)


def log_refused(stored: StoredDeclarations) -> None:
    """Log the declarations that are not in force."""
    for kind, name, error in stored.refused:
        about = {"event": "declaration.refused", "kind": kind, "name_declared": name}
        logger.error("a declaration was refused (%s %r): %s", WHAT[kind], name, error, extra=about)
    for name in stored.removed:
        logger.info(
            "the limit %r was removed by hand, and is not set again: its declaration is the same",
            name,
            extra={"event": "limit.removed", "limit": name},
        )
