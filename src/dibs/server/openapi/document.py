"""The API's description in OpenAPI 3.1, made from the endpoints themselves, so that it says what they do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import getdoc
from typing import Any, get_type_hints

from dibs.codec import MAX_BYTES, MAX_INTEGER, MAX_NAME
from dibs.model.schedule import MAX_SCHEDULE_NAME
from dibs.server.endpoint import ANY, Endpoint
from dibs.server.openapi import examples
from dibs.server.openapi.schemas import REFS, Schemas, not_null
from dibs.version import __version__
from dibs.wire.errors import CODES
from dibs.wire.schedules import Schedule
from dibs.wire.tasks import Task
from dibs.wire.workflows import Workflow

Part = dict[str, Any]
JSON = "application/json"
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})

DESCRIPTION = """\
Put tasks into a durable queue, claim them, and say how they ended. Every task is claimed by exactly one worker.

**Keys.** Send an API key in the header `X-API-Key`, or as `Authorization: Bearer`; `dibs keys create` makes one. A key
has scopes: `enqueue` puts tasks in, `work` claims and finishes them, `read` looks, `admin` may do everything. It may be
limited to some queues: to such a key, tasks of other queues do not exist. A key may ask as often as its rate limit
says; whoever asks more often is answered with 429, and `Retry-After` says how many seconds to wait. A server that runs
without keys asks for none.
Those who share a key can tell themselves apart by a name in the header `X-Dibs-Signature`, which the history shows.

**Errors.** Whatever is refused has changed nothing. The answer is
`{"success": false, "error": "what happened", "code": "a_stable_word", "hint": "what to do"}`, with the task's id, token
and status where they matter. Programs should look at `code`. Fields and query parameters that are not known are
refused, never ignored. A path that does not exist is answered with 404, a method
that a path does not have with 405 and `Allow`. A 503 says that the store did not answer in time: ask again after
`Retry-After` seconds.

**Idempotency.** A request whose answer was lost can be repeated. Enqueue with an `idempotency_key`: the same key with
the same type and params answers with the task that is there. Claim with a `request_id`: the same claim answers with
what it got the first time. The same outcome with the same token is
answered again, with `repeated`; with another result or error it is refused with 409 and `outcome_conflict`.

**Fencing.** Each claim of a task comes with a token, a number that grows with every claim of that task. Whoever writes
about a claimed task names its token, and a stale token changes nothing: the answer is 409 with the code `claim_lost`,
and the worker should stop. A claim holds under a lease: renew it every third of it, or somebody else gets the task.
"""

TAGS = {
    "tasks": "Put tasks in, look at them, take them back.",
    "claims": "Take tasks, keep them, say how they ended.",
    "workflows": "Tasks that wait for each other.",
    "finalization": "Who may say how a workflow ended.",
    "dead letter": "Tasks that failed for good.",
    "task types": "What the params of a type must look like.",
    "queues": "Where tasks wait.",
    "workers": "Who serves.",
    "schedules": "Tasks by the clock.",
    "retention": "How long finished records are kept.",
    "events": "What happens, as it happens.",
    "keys": "Who may ask for what.",
    "upkeep": "What keeps the store in order; workers and servers do it by themselves.",
    "health": "Whether the server is well.",
    "description": "This description.",
}

MEANINGS = {
    400: "The request is not what is expected here: malformed, out of bounds, or with something unknown in it.",
    401: "The key is missing, wrong, expired or revoked.",
    403: "The key may not do this.",
    404: "There is no such thing, or the key may not see it.",
    409: "Things stand otherwise than the request assumes.",
    405: "The path has other methods; `Allow` names them.",
    408: "The request did not come to its end in time.",
    413: f"The body is larger than {MAX_BYTES:,} bytes.",
    415: "The body does not say that it is JSON.",
    421: "The server does not go by the name in the Host header.",
    429: "The key's rate limit is reached, or too many requests without a good key came from this address.",
    431: "The headers are too large.",
    503: "The store did not answer in time. Asking again is safe with the same key, token or request_id.",
}
SHARED = {
    status: [code for code, its in CODES.items() if its.status == status and code != "not_your_claim"]
    for status in MEANINGS
}
NOT_FOUND = {
    "/api/schedules/": "schedule_not_found",
    "/api/retention/": "retention_not_found",
    "/api/task-types/": "task_type_not_found",
    "/api/keys/": "key_not_found",
    "/api/workflows/": "workflow_not_found",
}
"""The code of a refusal for what is not there, where it is not a task."""

RETRY_AFTER = {"description": "Whole seconds to wait.", "required": True, "schema": {"type": "integer", "minimum": 1}}
CHALLENGE = {"description": "How to prove who you are.", "required": True, "schema": {"const": "ApiKey, Bearer"}}
ALLOW = {"description": "The methods that the path has.", "required": True, "schema": {"type": "string"}}
HEADERS = {
    401: {"WWW-Authenticate": CHALLENGE},
    405: {"Allow": ALLOW},
    429: {"Retry-After": RETRY_AFTER},
    503: {"Retry-After": RETRY_AFTER},
}

KEY = {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "dibs_<id>_<secret>"}
BEARER = {"type": "http", "scheme": "bearer", "description": "The same key, for those who can send no other header."}
NAME: Part = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"}
SCHEDULE_NAME: Part = {**NAME, "maxLength": MAX_SCHEDULE_NAME}
IN_PATH: dict[str, Part] = {"int": {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}, "name": NAME, "": NAME}
NAMED_IN_PATH = {
    "/api/tasks/": "The task's id.",
    "/api/queues/": "The queue's name.",
    "/api/task-types/": "The type's name.",
    "/api/schedules/": "The schedule's name.",
    "/api/workflows/": "The workflow's id.",
    "/api/keys/": "The key's id: what stands between its two underscores.",
}
SIGNATURE: Part = {
    "name": "X-Dibs-Signature",
    "in": "header",
    "description": "A name that the history shows beside the key's id, to tell apart those who share a key.",
    "schema": {"type": "string", "maxLength": MAX_NAME, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}


def describe(endpoints: Iterable[Endpoint]) -> Part:
    """The whole description."""
    endpoints = list(endpoints)
    schemas = Schemas(_taken(endpoints), _answered(endpoints))
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
    """A name for the operation that programs can use."""
    tag = re.sub(r"\W", "_", endpoint.tag)
    name = endpoint.handle.__name__.removesuffix(f"_{tag.rpartition('_')[2]}")  # list_tasks of tasks is tasks_list
    return tag if name == tag else f"{tag}_{name}"


def plain_path(endpoint: Endpoint) -> str:
    """The path without the kinds of its parameters."""
    return re.sub(r"{(\w+):\w+}", r"{\1}", endpoint.path)


def _taken(endpoints: list[Endpoint]) -> list[Any]:
    return [each for endpoint in endpoints for each in (endpoint.body, endpoint.query) if each is not None]


def _answered(endpoints: list[Endpoint]) -> list[Any]:
    return [kind for endpoint in endpoints if endpoint.media == JSON for kind, _ in endpoint.answers.values()]


def _paths(endpoints: list[Endpoint], schemas: Schemas) -> Part:
    paths: dict[str, Part] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        _link(operation, endpoint, endpoints)
        paths.setdefault(plain_path(endpoint), {})[endpoint.method.lower()] = operation
    return paths


def _link(operation: Part, endpoint: Endpoint, endpoints: list[Endpoint]) -> None:
    """Say what can be done next with the task, schedule or workflow that the operation answers with."""
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


def _with_task(endpoint: Endpoint) -> Part:
    link: Part = {"operationId": operation_id(endpoint), "parameters": {"id": "$response.body#/task/id"}}
    if _is_fenced(endpoint):
        link["requestBody"] = {name: f"$response.body#/task/{name}" for name in ("worker_id", "token")}
    return link


def _with_schedule(endpoint: Endpoint) -> Part:
    return {"operationId": operation_id(endpoint), "parameters": {"name": "$response.body#/schedule/name"}}


def _with_workflow(endpoint: Endpoint) -> Part:
    return {"operationId": operation_id(endpoint), "parameters": {"id": "$response.body#/workflow/id"}}


def _operation(endpoint: Endpoint, schemas: Schemas) -> Part:
    summary, text = _told(endpoint)
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


def _told(endpoint: Endpoint) -> tuple[str, str]:
    """The first sentence of what the handler says of itself, and the rest."""
    first, _, rest = (getdoc(endpoint.handle) or "").partition("\n")
    summary, stop, more = first.partition(". ")
    return summary.removesuffix("."), "\n\n".join(each for each in (stop and more, rest.strip()) if each)


def _scope(endpoint: Endpoint) -> str:
    if not endpoint.scopes:
        return "No key is needed."
    if endpoint.scopes == ANY:
        return "Any key will do."
    return f"Needs a key with the scope {' or '.join(f'`{scope}`' for scope in sorted(endpoint.scopes))}."


def _parameters(endpoint: Endpoint, schemas: Schemas) -> list[Part]:
    signature = [{"$ref": "#/components/parameters/Signature"}] if endpoint.scopes else []
    headers = [{"in": "header", **each} for each in endpoint.headers]
    return [*_in_path(endpoint), *_in_query(endpoint, schemas), *headers, *signature]


def _in_path(endpoint: Endpoint) -> list[Part]:
    found = re.findall(r"{(\w+):?(\w*)}", endpoint.path)
    kinds = {**IN_PATH, "name": SCHEDULE_NAME} if endpoint.path.startswith("/api/schedules/") else IN_PATH
    what = next((text for start, text in NAMED_IN_PATH.items() if endpoint.path.startswith(start)), "")
    about = {"in": "path", "required": True, "description": what}
    return [{"name": name, **about, "schema": kinds[kind]} for name, kind in found]


def _in_query(endpoint: Endpoint, schemas: Schemas) -> list[Part]:
    """Each field of the query's model; as text there is no null, so that leaving it out is all one can do."""
    if endpoint.query is None:
        return []
    model = schemas.resolved(schemas.of(endpoint.query))
    required = model.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": not_null(schema)}
        for name, schema in model.get("properties", {}).items()
    ]


def _body(endpoint: Endpoint, schemas: Schemas) -> Part:
    content: Part = {"schema": schemas.of(endpoint.body)}
    if endpoint.examples:
        content["examples"] = {
            _key(name): {"summary": name, "value": value} for name, value in endpoint.examples.items()
        }
    return {"required": not endpoint.body_optional, "content": {JSON: content}}


def _key(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _responses(endpoint: Endpoint, schemas: Schemas) -> Part:
    """What it answers, in the order in which the endpoint names it, and what it refuses."""
    answers = {str(status): _answer(endpoint, *about, schemas) for status, about in endpoint.answers.items()}
    for status in endpoint.answers.keys() & endpoint.refuses.keys():
        content = answers[str(status)]["content"][JSON]
        content["schema"] = {"anyOf": [content["schema"], {"$ref": f"{REFS}Refusal"}]}
    shared = {str(status): {"$ref": f"#/components/responses/{status}"} for status in common(endpoint)}
    own = {str(status): _refusal(status, text, codes(endpoint, status)) for status, text in endpoint.refuses.items()}
    return {**answers, **{status: each for status, each in sorted({**shared, **own}.items()) if status not in answers}}


def common(endpoint: Endpoint) -> list[int]:
    """The refusals that the endpoint shares with others."""
    guarded, writes = bool(endpoint.scopes), endpoint.method in UNSAFE
    takes_body = endpoint.body is not None
    may = {
        400: True,  # an unknown query parameter
        401: guarded,
        403: (guarded and endpoint.scopes != ANY) or writes,
        408: True,
        413: takes_body,
        415: takes_body,
        421: True,
        429: guarded,
        431: True,
        503: True,  # there are only so many connections
    }
    return [status for status, possible in may.items() if possible]


def _answer(endpoint: Endpoint, kind: Any, text: str, schemas: Schemas) -> Part:
    if endpoint.media != JSON:
        return {"description": text, "content": {endpoint.media: {"schema": {"type": "string"}}}}
    schema = schemas.of(kind)
    example = examples.answer(kind, claimed=endpoint.tag == "claims")
    return {"description": text, "content": {JSON: {"schema": schema, "example": example}}}


def codes(endpoint: Endpoint, status: int) -> list[str]:
    """The codes that a refusal of the endpoint's own can have."""
    if status == 403:
        return [*SHARED[403], *(["not_your_claim"] if _is_fenced(endpoint) else [])]
    if status == 404:
        found = next((code for start, code in NOT_FOUND.items() if endpoint.path.startswith(start)), "task_not_found")
        return ["not_found", found]
    if _is_fenced(endpoint):
        if endpoint.path.startswith("/api/workflows/"):
            return ["finalization_lost"]
        return ["claim_lost", *(["outcome_conflict"] if endpoint.path.endswith(("/complete", "/fail")) else [])]
    return SHARED[status]


def _refusal(status: int, text: str, its_codes: list[str]) -> Part:
    schema = {"allOf": [{"$ref": f"{REFS}Refusal"}, {"properties": {"code": {"enum": its_codes}}}]}
    shown = {code: {"value": value} for code, value in examples.refusals(its_codes).items()}
    content: Part = {"schema": schema, **({"examples": shown} if shown else {})}
    headers = {"headers": HEADERS[status]} if status in HEADERS else {}
    return {"description": text or MEANINGS[status], **headers, "content": {JSON: content}}
