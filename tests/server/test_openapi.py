"""The description of the API: valid, complete, true to the endpoints, and readable."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import httpx
import jsonschema_rs
import pytest

from dibs.server.api import ENDPOINTS
from dibs.server.api.docs import description, page
from dibs.server.openapi.document import TAGS, operation_id, plain_path
from tests.helpers.processes import ROOT
from tests.server.conftest import Served
from tools import typescript

JSON = "application/json"
ORIGIN = "http://127.0.0.1:8787"

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return description()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    return jsonschema_rs.validator_for(
        {**schema, "components": document["components"], "$schema": "https://json-schema.org/draft/2020-12/schema"},
        validate_formats=True,
    )


def test_the_description_is_valid_openapi(document: dict[str, Any]) -> None:
    # Imported here: every test process imports this file, and one of them runs this test.
    from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(document)] == []


def test_the_types_of_the_typescript_client_are_those_of_the_description() -> None:
    committed = (ROOT / "clients/typescript/src/types.ts").read_text()
    assert committed.splitlines() == list(typescript.lines()), (
        "python -m tools.typescript > clients/typescript/src/types.ts"
    )


def test_every_reference_in_the_description_resolves(document: dict[str, Any]) -> None:
    for reference in set(re.findall(r"'(#/components/[^']+)'", str(document))):
        _, _, kind, name = reference.split("/")
        assert name in document["components"][kind], reference


def test_every_endpoint_is_described(document: dict[str, Any]) -> None:
    described = dict(operations(document))
    for endpoint in ENDPOINTS:
        operation = described.pop(f"{endpoint.method} {plain_path(endpoint)}")
        assert operation["summary"]
        assert operation["x-scope"] == sorted(endpoint.scopes)
        assert operation["security"] == ([{"key": []}, {"bearer": []}] if endpoint.scopes else [])
        assert endpoint.tag in TAGS
    assert described == {}


def test_every_operation_has_a_unique_id() -> None:
    names = [operation_id(endpoint) for endpoint in ENDPOINTS]
    assert sorted(set(names)) == sorted(names)
    assert all(re.fullmatch("[a-z_]+", name) for name in names)


def test_no_operation_documents_a_500(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert "500" not in operation["responses"], name


def test_every_operation_that_needs_a_key_documents_its_refusals(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        wanted = {"401", "429"} if operation["security"] else set()
        assert wanted == wanted & set(operation["responses"]), name
    shared = document["components"]["responses"]
    assert "WWW-Authenticate" in shared["401"]["headers"]
    assert all("Retry-After" in shared[status]["headers"] for status in ("429", "503"))


def test_every_field_of_a_body_has_a_description(document: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.body is not None:
            rows = re.search(rf'<article id="{operation_id(endpoint)}">.*?</article>', page(ORIGIN).decode(), re.DOTALL)
            assert rows is not None
            assert "<td></td>" not in rows[0], operation_id(endpoint)


def test_every_example_is_valid_by_its_schema(document: dict[str, Any]) -> None:
    for name, media in itertools.chain(bodies(document), answers(document)):
        allowed = validator(document, media["schema"])
        examples = [each["value"] for each in media.get("examples", {}).values()]
        for example in examples + ([media["example"]] if "example" in media else []):
            assert [error.message for error in allowed.iter_errors(example)] == [], (name, example)


def test_every_json_response_has_an_example(document: dict[str, Any]) -> None:
    for name, media in answers(document):
        assert "example" in media or "examples" in media, name


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, operation in operations(document):
        if "requestBody" in operation:
            yield name, operation["requestBody"]["content"][JSON]


def answers(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    shared = document["components"]["responses"]
    yield from ((f"any {status}", response["content"][JSON]) for status, response in shared.items())
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            if JSON in response.get("content", {}):
                yield f"{name} {status}", response["content"][JSON]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/tasks", {"task_type": "t", "delay_seconds": 1, "run_at": "2030-01-01T00:00:00Z"}),
        ("/api/tasks", {"task_type": "t", "run_at": "2030-01-01T00:00:00"}),
        ("/api/tasks", {"task_type": "t", "params": {"n": 2**63}}),
        ("/api/tasks", {"task_type": "t", "params": {"text": "a\x00b"}}),
        ("/api/tasks", {"task_type": "t", "params": {"a\x00b": 1}}),
        ("/api/tasks", {"task_type": "t", "params": {"deep": [{"text": "a\x00b"}]}}),
        ("/api/tasks/claim", {"worker_id": "w", "order": "fifo", "sort_by": "priority"}),
        ("/api/tasks/claim", {"worker_id": "w", "order": "fifo", "sort_order": "asc"}),
        ("/api/tasks/claim", {"worker_id": "w\n"}),
        ("/api/keys", {"name": "k", "scopes": ["read"], "expires_in_seconds": 9, "expires_at": "2030-01-01T00:00:00Z"}),
        ("/api/keys", {"name": "k", "scopes": ["read"], "rate_limit": "0/minute"}),
    ],
    ids=str,
)
@on_sqlite
def test_values_that_the_code_refuses_are_refused_by_the_schema_as_well(
    path: str, body: dict[str, Any], document: dict[str, Any], http: httpx.Client
) -> None:
    schema = document["paths"][path]["post"]["requestBody"]["content"][JSON]["schema"]

    assert not validator(document, schema).is_valid(body)
    assert http.post(path, json=body).status_code == 400


@on_sqlite
def test_values_next_to_the_refused_ones_are_accepted_by_schema_and_code(
    document: dict[str, Any], http: httpx.Client
) -> None:
    for path, body in (
        ("/api/tasks", {"task_type": "t", "delay_seconds": 1, "run_at": None}),
        ("/api/tasks", {"task_type": "t", "run_at": "2030-01-01T00:00:00+01:00"}),
        ("/api/tasks", {"task_type": "t", "params": {"n": 2**63 - 1, "m": -(2**63), "text": "a\nb"}}),
        ("/api/tasks/claim", {"worker_id": "w", "order": "fifo", "sort_by": None}),
    ):
        schema = document["paths"][path]["post"]["requestBody"]["content"][JSON]["schema"]
        assert validator(document, schema).is_valid(body)
        assert http.post(path, json=body).status_code in (200, 201)


@on_sqlite
def test_the_description_needs_no_key(keyed: Served) -> None:
    client = keyed.client()

    assert client.get("/api/openapi.json").json()["openapi"] == "3.1.0"
    assert client.get("/api/docs").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/api/docs.css").headers["content-type"] == "text/css; charset=utf-8"


@on_sqlite
def test_the_page_of_the_api_loads_nothing_from_other_sites(http: httpx.Client) -> None:
    answer = http.get("/api/docs")

    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=|<img|<iframe", answer.text)
    assert re.findall(r'<link[^>]+href="([^"]+)"', answer.text) == ["/api/docs.css"]
    assert not re.search(r"url\(|@import", http.get("/api/docs.css").text)


def test_the_page_of_the_api_lists_every_operation_and_its_links_resolve(document: dict[str, Any]) -> None:
    text = page(ORIGIN).decode()
    anchors = set(re.findall(r'id="([^"]+)"', text))

    assert {operation["operationId"] for _, operation in operations(document)} <= anchors
    assert set(re.findall(r'href="#([^"]+)"', text)) <= anchors


@on_sqlite
def test_every_command_on_the_page_of_the_api_works_unchanged(serve: Callable[..., Served]) -> None:
    client = serve(keys=True).client("admin")
    commands = re.findall(r"<pre><code>(curl.*?)</code></pre>", client.get("/api/docs").text, re.DOTALL)

    assert len(commands) == len(ENDPOINTS)
    for command in commands:
        method, url, body = parse(unescape(command))
        if not url.endswith("/api/events"):  # whose answer never ends
            answer = client.request(method, url, content=body, headers={"content-type": JSON} if body else {})
            assert answer.status_code in (200, 201, 404, 409), (command, answer.text)


def parse(command: str) -> tuple[str, str, str | None]:
    """What curl would send."""
    words = iter(shlex.split(command.replace("\\\n", " "))[1:])
    method, url, body = "GET", "", None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-d":
            body = next(words)
        elif word == "-H":
            next(words)
        else:
            url = word
    return method, url, body


def test_a_text_of_the_description_cannot_become_markup() -> None:
    from dibs.server.openapi.reference import words

    assert words("<b>`<i>`</b> **x**") == "&lt;b&gt;<code>&lt;i&gt;</code>&lt;/b&gt; <strong>x</strong>"
