"""The OpenAPI 3.1 document of the HTTP API, created from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import getdoc
from typing import Any, get_type_hints

from dibs.json_values import MAX_BYTES, MAX_INTEGER, MAX_NAME
from dibs.model.schedule import MAX_SCHEDULE_NAME
from dibs.server.endpoint import ANY, Endpoint
from dibs.server.openapi import examples
from dibs.server.openapi.schemas import REFS, Schemas, not_null
from dibs.version import __version__
from dibs.wire.errors import CODES
from dibs.wire.schedules import Schedule
from dibs.wire.tasks import Task
from dibs.wire.workflows import Workflow

JsonObject = dict[str, Any]
"""A part of the document."""

JSON = "application/json"
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})

DESCRIPTION = """\
Enqueue tasks in a durable queue, claim them, and report their outcomes. A task is claimed by one worker at a time.

**Keys.** Send an API key in the header `X-API-Key`, or as `Authorization: Bearer`. Create a key with
`dibs keys create`. A key has scopes: `enqueue` enqueues, cancels and retries tasks, `work` claims and finishes tasks,
`read` reads, `admin` allows everything. A key may be limited to some queues: for such a key, tasks of other queues do
not exist. A key has a rate limit: requests above it are refused with 429, and `Retry-After` is the number of seconds to
wait. A server that runs without keys needs no key. Programs that share a key can send a name in the header
`X-Dibs-Signature`, which the history shows.

**Errors.** A refused request has changed nothing. The response is
`{"success": false, "error": "what happened", "code": "a_stable_word", "hint": "what to do"}`, with the id, token
and status of the task where they matter. Programs should use `code`. Unknown fields and query parameters are
refused, not ignored. An unknown path is refused with 404, and a method that a path does not support with 405 and
`Allow`. A 503 means that the store did not answer in time: repeat the request after `Retry-After` seconds.

**Idempotency.** A request whose response was lost can be repeated. Enqueue with an `idempotency_key`: the same key with
the same type and params returns the existing task. Claim with a `request_id`: the same claim returns the same tasks.
The same outcome with the same token is answered with `repeated`; another result or error is refused with 409 and
`outcome_conflict`.

**Fencing.** Each claim of a task has a token, a number that grows with every claim of that task. Every write about a
claimed task needs the token of its claim. A stale token changes nothing: the response is 409 with the code
`claim_lost`, and the worker should stop. A claim is valid until its lease ends. Renew the lease whenever
a third of it has passed; otherwise another worker gets the task.
"""

TAGS = {
    "tasks": "Enqueue, read, search, cancel and retry tasks.",
    "claims": "Claim tasks, renew leases, report outcomes.",
    "logs": "What the handlers of tasks have logged, attempt by attempt.",
    "workflows": "Graphs of tasks that wait for each other.",
    "finalization": "Decide how a workflow ended.",
    "dead letter": "Tasks that failed for good.",
    "task types": "JSON Schemas and defaults for the params of a task type.",
    "queues": "Queues, their depth, and pausing them.",
    "limits": "How many tasks may run at once, or start in a period; settings of queues and task types.",
    "workers": "Workers and their heartbeats.",
    "schedules": "Tasks that are enqueued by cron.",
    "retention": "How long finished records are kept.",
    "events": "The history, server-sent events and wake-ups.",
    "keys": "API keys.",
    "upkeep": "Promote, recover, prune, tick schedules. Workers and servers do this by themselves.",
    "health": "Health, readiness and metrics of the server.",
    "description": "This document.",
}

MEANINGS = {
    400: "The request is malformed, has a value out of bounds, or has an unknown field or parameter.",
    401: "The key is missing, wrong, expired or revoked.",
    403: "The key may not do this.",
    404: "The resource does not exist, or the key may not see it.",
    409: "The resource is not in the state that the request needs.",
    405: "The path does not support this method; `Allow` lists the supported methods.",
    408: "The request was not complete in time.",
    413: f"The body is larger than {MAX_BYTES:,} bytes.",
    415: "The content type of the body is not application/json.",
    421: "The Host header is not a name of this server.",
    429: "The rate limit of the key is reached, or this address sent too many requests without a valid key.",
    431: "The headers are too large.",
    503: "The store did not answer in time. Repeating the request is safe with the same idempotency key, token or "
    "`request_id`.",
}
SHARED = {
    status: [code for code, about in CODES.items() if about.status == status and code != "not_your_claim"]
    for status in MEANINGS
}
NOT_FOUND = {
    "/api/limits/": "limit_not_found",
    "/api/schedules/": "schedule_not_found",
    "/api/retention/": "retention_not_found",
    "/api/task-types/{name:name}/settings": "limit_not_found",
    "/api/task-types/": "task_type_not_found",
    "/api/queues/": "limit_not_found",
    "/api/keys/": "key_not_found",
    "/api/workflows/": "workflow_not_found",
}
"""The code for a resource that does not exist, by path; for other paths it is task_not_found."""

RETRY_AFTER = {
    "description": "Seconds to wait, a whole number.",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}
CHALLENGE = {
    "description": "The supported authentication schemes.",
    "required": True,
    "schema": {"const": "ApiKey, Bearer"},
}
ALLOW = {"description": "The methods that the path supports.", "required": True, "schema": {"type": "string"}}
HEADERS = {
    401: {"WWW-Authenticate": CHALLENGE},
    405: {"Allow": ALLOW},
    429: {"Retry-After": RETRY_AFTER},
    503: {"Retry-After": RETRY_AFTER},
}

KEY = {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "dibs_<id>_<secret>"}
BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "The same key, for clients that cannot send another header.",
}
NAME: JsonObject = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"}
SCHEDULE_NAME: JsonObject = {**NAME, "maxLength": MAX_SCHEDULE_NAME}
IN_PATH: dict[str, JsonObject] = {
    "int": {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
    "name": NAME,
    "": NAME,
}
NAMED_IN_PATH = {
    "/api/tasks/": "The task's id.",
    "/api/queues/": "The queue's name.",
    "/api/task-types/": "The type's name.",
    "/api/limits/": "The limit's name.",
    "/api/schedules/": "The schedule's name.",
    "/api/workflows/": "The workflow's id.",
    "/api/keys/": "The key's id: the part of its text between the two underscores.",
}
SIGNATURE: JsonObject = {
    "name": "X-Dibs-Signature",
    "in": "header",
    "description": "A name that the history shows after the key's id. It distinguishes programs that share a key.",
    "schema": {"type": "string", "maxLength": MAX_NAME, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}


def describe(endpoints: Iterable[Endpoint]) -> JsonObject:
    """Return the OpenAPI document."""
    endpoints = list(endpoints)
    schemas = Schemas(_request_models(endpoints), _answer_models(endpoints))
    used = {endpoint.tag for endpoint in endpoints}
    return {
        "openapi": "3.1.0",
        "info": {"title": "dibs", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": "/", "description": "This server."}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items() if name in used],
        "paths": _paths(endpoints, schemas),
        "components": {
            "securitySchemes": {"key": KEY, "bearer": BEARER},
            "parameters": {"Signature": SIGNATURE},
            "responses": {str(status): _refusal(status, text, SHARED[status]) for status, text in MEANINGS.items()},
            "schemas": dict(sorted(schemas.components.items())),
        },
    }  # fmt: skip


def operation_id(endpoint: Endpoint) -> str:
    """Return the operationId, from which generators derive the names of functions."""
    tag = re.sub(r"\W", "_", endpoint.tag)
    name = endpoint.handle.__name__.removesuffix(
        f"_{tag.rpartition('_')[2]}"
    )  # list_tasks with the tag tasks becomes tasks_list
    return tag if name == tag else f"{tag}_{name}"


def plain_path(endpoint: Endpoint) -> str:
    """Return the path without the types of its parameters."""
    return re.sub(r"{(\w+):\w+}", r"{\1}", endpoint.path)


def _request_models(endpoints: list[Endpoint]) -> list[Any]:
    return [each for endpoint in endpoints for each in (endpoint.body, endpoint.query) if each is not None]


def _answer_models(endpoints: list[Endpoint]) -> list[Any]:
    return [kind for endpoint in endpoints if endpoint.media == JSON for kind, _ in endpoint.answers.values()]


def _paths(endpoints: list[Endpoint], schemas: Schemas) -> JsonObject:
    paths: dict[str, JsonObject] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        _link(operation, endpoint, endpoints)
        paths.setdefault(plain_path(endpoint), {})[endpoint.method.lower()] = operation
    return paths


def _link(operation: JsonObject, endpoint: Endpoint, endpoints: list[Endpoint]) -> None:
    """Add OpenAPI links from an answer with a task, schedule or workflow to the operations on it."""
    for status, (kind, _) in endpoint.answers.items():
        fields = get_type_hints(kind) if status < 300 and isinstance(kind, type) else {}
        if fields.get("task") is Task:
            held = endpoint.tag == "claims"
            after = [each for each in _under(endpoints, "/api/tasks/{id") if _is_fenced(each) == held]
            operation["responses"][str(status)]["links"] = {operation_id(each): _with_task(each) for each in after}
        elif fields.get("schedule") is Schedule:
            after = _under(endpoints, "/api/schedules/{name")
            operation["responses"][str(status)]["links"] = {operation_id(each): _with_schedule(each) for each in after}
        elif fields.get("workflow") is Workflow:
            after = _under(endpoints, "/api/workflows/{id")
            operation["responses"][str(status)]["links"] = {operation_id(each): _with_workflow(each) for each in after}


def _under(endpoints: list[Endpoint], path: str) -> list[Endpoint]:
    return [each for each in endpoints if each.path.startswith(path)]


def _is_fenced(endpoint: Endpoint) -> bool:
    return endpoint.body is not None and "token" in get_type_hints(endpoint.body)


def _with_task(endpoint: Endpoint) -> JsonObject:
    link: JsonObject = {"operationId": operation_id(endpoint), "parameters": {"id": "$response.body#/task/id"}}
    if _is_fenced(endpoint):
        link["requestBody"] = {name: f"$response.body#/task/{name}" for name in ("worker_id", "token")}
    return link


def _with_schedule(endpoint: Endpoint) -> JsonObject:
    return {"operationId": operation_id(endpoint), "parameters": {"name": "$response.body#/schedule/name"}}


def _with_workflow(endpoint: Endpoint) -> JsonObject:
    return {"operationId": operation_id(endpoint), "parameters": {"id": "$response.body#/workflow/id"}}


def _operation(endpoint: Endpoint, schemas: Schemas) -> JsonObject:
    summary, text = _summary_and_text(endpoint)
    operation = {
        "operationId": operation_id(endpoint),
        "tags": [endpoint.tag],
        "summary": summary,
        "description": f"{text}\n\n{_scope(endpoint)}".strip(),
        "x-scope": sorted(endpoint.scopes),
        "security": [{"key": []}, {"bearer": []}] if endpoint.scopes else [],
        "parameters": _parameters(endpoint, schemas),
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.body is not None:
        operation["requestBody"] = _body(endpoint, schemas)
    return operation


def _summary_and_text(endpoint: Endpoint) -> tuple[str, str]:
    """Return the first sentence of the handler's docstring, and the rest of the docstring."""
    first, _, rest = (getdoc(endpoint.handle) or "").partition("\n\n")
    summary, _, more = first.replace("\n", " ").partition(". ")
    return summary.removesuffix("."), "\n\n".join(each for each in (more, rest.strip()) if each)


def _scope(endpoint: Endpoint) -> str:
    if not endpoint.scopes:
        return "Needs no key."
    if endpoint.scopes == ANY:
        return "Needs a key with any scope."
    return f"Needs a key with the scope {' or '.join(f'`{scope}`' for scope in sorted(endpoint.scopes))}."


def _parameters(endpoint: Endpoint, schemas: Schemas) -> list[JsonObject]:
    signature = [{"$ref": "#/components/parameters/Signature"}] if endpoint.scopes else []
    headers = [{"in": "header", **each} for each in endpoint.headers]
    return [*_in_path(endpoint), *_in_query(endpoint, schemas), *headers, *signature]


def _in_path(endpoint: Endpoint) -> list[JsonObject]:
    found = re.findall(r"{(\w+):?(\w*)}", endpoint.path)
    kinds = {**IN_PATH, "name": SCHEDULE_NAME} if endpoint.path.startswith("/api/schedules/") else IN_PATH
    what = next((text for start, text in NAMED_IN_PATH.items() if endpoint.path.startswith(start)), "")
    described = [(name, kind, "The group." if name == "group" else what) for name, kind in found]
    return [
        {"name": name, "in": "path", "required": True, "description": text, "schema": kinds[kind]}
        for name, kind, text in described
    ]


def _in_query(endpoint: Endpoint, schemas: Schemas) -> list[JsonObject]:
    """Return a parameter for each field of the query's model. A query string has no null, so null is removed."""
    if endpoint.query is None:
        return []
    model = schemas.resolved(schemas.of(endpoint.query))
    required = model.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": not_null(schema)}
        for name, schema in model.get("properties", {}).items()
    ]


def _body(endpoint: Endpoint, schemas: Schemas) -> JsonObject:
    content: JsonObject = {"schema": schemas.of(endpoint.body)}
    if endpoint.examples:
        content["examples"] = {
            _key(name): {"summary": name, "value": value} for name, value in endpoint.examples.items()
        }
    return {"required": not endpoint.body_optional, "content": {JSON: content}}


def _key(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _responses(endpoint: Endpoint, schemas: Schemas) -> JsonObject:
    """Return the answers, in the order of the endpoint's declaration, then the refusals by status."""
    answers = {str(status): _answer(endpoint, *about, schemas) for status, about in endpoint.answers.items()}
    for status in endpoint.answers.keys() & endpoint.refuses.keys():
        content = answers[str(status)]["content"][JSON]
        content["schema"] = {"anyOf": [content["schema"], {"$ref": f"{REFS}Refusal"}]}
    shared = {str(status): {"$ref": f"#/components/responses/{status}"} for status in common(endpoint)}
    own = {str(status): _refusal(status, text, codes(endpoint, status)) for status, text in endpoint.refuses.items()}
    return {**answers, **{status: each for status, each in sorted({**shared, **own}.items()) if status not in answers}}


def common(endpoint: Endpoint) -> list[int]:
    """Return the statuses of refusals that the endpoint has in common with others."""
    needs_key, writes = bool(endpoint.scopes), endpoint.method in UNSAFE
    takes_body = endpoint.body is not None
    may = {
        400: True,  # an unknown query parameter
        401: needs_key,
        403: (needs_key and endpoint.scopes != ANY) or writes,
        408: True,
        413: takes_body,
        415: takes_body,
        421: True,
        429: needs_key,
        431: True,
        503: True,  # the number of connections is limited
    }
    return [status for status, possible in may.items() if possible]


def _answer(endpoint: Endpoint, kind: Any, text: str, schemas: Schemas) -> JsonObject:
    if endpoint.media != JSON:
        return {"description": text, "content": {endpoint.media: {"schema": {"type": "string"}}}}
    schema = schemas.of(kind)
    example = examples.answer(kind, claimed=endpoint.tag == "claims")
    return {"description": text, "content": {JSON: {"schema": schema, "example": example}}}


def codes(endpoint: Endpoint, status: int) -> list[str]:
    """Return the codes that a refusal of this endpoint with this status can have."""
    if status == 403:
        return [*SHARED[403], *(["not_your_claim"] if _is_fenced(endpoint) else [])]
    if status == 410:
        return ["events_pruned"]
    if status == 404:
        found = next((code for start, code in NOT_FOUND.items() if endpoint.path.startswith(start)), "task_not_found")
        return ["not_found", found]
    if _is_fenced(endpoint):
        if endpoint.path.startswith("/api/workflows/"):
            return ["finalization_lost"]
        return ["claim_lost", *(["outcome_conflict"] if endpoint.path.endswith(("/complete", "/fail")) else [])]
    return SHARED[status]


def _refusal(status: int, text: str, codes_of_status: list[str]) -> JsonObject:
    schema = {"allOf": [{"$ref": f"{REFS}Refusal"}, {"properties": {"code": {"enum": codes_of_status}}}]}
    shown = {code: {"value": value} for code, value in examples.refusals(codes_of_status).items()}
    content: JsonObject = {"schema": schema, **({"examples": shown} if shown else {})}
    headers = {"headers": HEADERS[status]} if status in HEADERS else {}
    return {"description": text or MEANINGS[status], **headers, "content": {JSON: content}}
