"""The requests of clients, for each verb; made before the clock starts unless they depend on answers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from bench.http_load import Job

TYPE = "bench"
WORKER = "bench"
CLAIM = {"task_types": [TYPE], "max_attempts_remaining": 1, "sort_by": "priority", "sort_order": "desc"}
"""The claim of the API's description."""

RESULT = {"views": 12345}
PAGE = 20

Script = Callable[[bytes | None], bytes | None]
"""From the last answer of a client to its next request; None at the end."""


class Scripts(Protocol):
    """The scripts of all clients, and what they have seen."""

    finished: int

    def begin(self, count: int) -> None:
        """A new phase, of this number of requests."""

    def of(self, number: int) -> Script:
        """The script of a client in this phase."""

    def seen(self) -> list[tuple[int, int]]:
        """The ids and tokens of the tasks in all answers."""


def scripts(job: Job) -> Scripts:
    """Those of the job's verb."""
    match job.verb:
        case "cycle":
            return Cycles(job)
        case "exchange":
            return Exchanges(job)
        case _:
            return Listed(job, list(_LISTS[job.verb](job)))


class _Task(msgspec.Struct, frozen=True):
    id: int
    token: int


class _Reply(msgspec.Struct, frozen=True):
    success: bool


class _Answer(msgspec.Struct, frozen=True):
    task: _Task | None = None
    tasks: list[_Task] = []
    answers: list[_Reply] = []


_read = msgspec.json.Decoder(_Answer).decode


class Listed:
    """Requests that are all known before: a free client sends the next one."""

    def __init__(self, job: Job, requests: list[bytes]) -> None:
        self.finished = 0
        self._requests = iter(requests)
        self._phase: Iterator[bytes] = iter(())
        self._bodies: list[bytes] = []

    def begin(self, count: int) -> None:
        """See Scripts."""
        self._phase = itertools.islice(self._requests, count)

    def of(self, number: int) -> Script:
        """See Scripts."""
        phase, keep = self._phase, self._bodies.append

        def script(body: bytes | None) -> bytes | None:
            if body is not None:
                keep(body)
            return next(phase, None)

        return script

    def seen(self) -> list[tuple[int, int]]:
        """See Scripts."""
        answers = map(_read, self._bodies)
        return [(task.id, task.token) for answer in answers for task in (answer.tasks or [answer.task]) if task]


class Cycles:
    """A claim, then the completion of what was claimed."""

    def __init__(self, job: Job) -> None:
        self.finished = 0
        self._job = job
        self._claims: Iterator[int] = iter(())
        self._seen: list[_Task] = []

    def begin(self, count: int) -> None:
        """See Scripts."""
        self.finished = 0
        self._claims = iter(range(count))

    def of(self, number: int) -> Script:
        """See Scripts."""
        worker = f"{WORKER}-{number}"
        claim = _claim(self._job, worker)
        held = False

        def script(body: bytes | None) -> bytes | None:
            nonlocal held
            if held:
                assert body is not None
                held = False
                task = _read(body).task
                assert task is not None
                self._seen.append(task)
                return _complete(self._job, worker, task.id, task.token)
            self.finished += body is not None
            held = next(self._claims, None) is not None
            return claim if held else None

        return script

    def seen(self) -> list[tuple[int, int]]:
        """See Scripts."""
        return [(task.id, task.token) for task in self._seen]


class Exchanges:
    """The outcomes of the last batch for the next one; the last phase lasts until nothing is left."""

    def __init__(self, job: Job) -> None:
        self.finished = 0
        self._job = job
        self._left = 0
        self._held: list[list[_Task]] = [[] for _ in range(job.clients)]
        self._seen: list[_Task] = []

    def begin(self, count: int) -> None:
        """See Scripts."""
        self.finished, self._left = 0, count

    def of(self, number: int) -> Script:
        """See Scripts."""
        worker, wish = f"{WORKER}-{number}", {**CLAIM, "count": self._job.batch}

        def script(body: bytes | None) -> bytes | None:
            if body is not None and not self._take(number, _read(body)):
                return None
            if self._left <= 0:
                return None
            self._left -= 1
            outcomes = [
                {"task_id": task.id, "token": task.token, "outcome": "completed", "result": RESULT}
                for task in self._held[number]
            ]
            content = {"worker_id": worker, "outcomes": outcomes, "claim": wish}
            return _request(self._job, "POST", "/api/tasks/exchange", content)

        return script

    def _take(self, number: int, answer: _Answer) -> bool:
        """Hold the next batch; False when there was nothing more to exchange."""
        told = len(self._held[number])
        if len(answer.answers) != told or not all(each.success for each in answer.answers):
            raise RuntimeError(f"An outcome was refused: {answer.answers}")
        self.finished += told
        self._held[number] = answer.tasks
        self._seen += answer.tasks
        return bool(told or answer.tasks)

    def seen(self) -> list[tuple[int, int]]:
        """See Scripts."""
        return [(task.id, task.token) for task in self._seen]


def _claims(job: Job) -> Iterator[bytes]:
    return (_claim(job, f"{WORKER}-{number % job.clients}") for number in range(job.warm_up + job.count))


def _creations(job: Job) -> Iterator[bytes]:
    for number in range(job.warm_up + job.count):
        yield _request(
            job, "POST", "/api/tasks", {"task_type": TYPE, "params": {"number": number}, "priority": number % 10}
        )


def _completions(job: Job) -> Iterator[bytes]:
    return (_complete(job, WORKER, task, token) for task, token in job.tasks)


def _looks(job: Job) -> Iterator[bytes]:
    for number in range(job.warm_up + job.count):
        yield _request(job, "GET", f"/api/tasks/{job.tasks[number % len(job.tasks)][0]}")


def _lists(job: Job) -> Iterator[bytes]:
    """Any page."""
    ids, dice = sorted(task for task, _ in job.tasks), random.Random(job.count)
    for _ in range(job.warm_up + job.count):
        yield _request(job, "GET", f"/api/tasks?limit={PAGE}&cursor={ids[dice.randrange(PAGE, len(ids))]}")


_LISTS: dict[str, Callable[[Job], Iterator[bytes]]] = {
    "claim": _claims,
    "create": _creations,
    "complete": _completions,
    "get": _looks,
    "list": _lists,
}


def _claim(job: Job, worker: str) -> bytes:
    return _request(job, "POST", "/api/tasks/claim", {"worker_id": worker, **CLAIM})


def _complete(job: Job, worker: str, task: int, token: int) -> bytes:
    content = {"worker_id": worker, "token": token, "result": RESULT}
    return _request(job, "POST", f"/api/tasks/{task}/complete", content)


def _request(job: Job, method: str, path: str, content: Any = None) -> bytes:
    return request(f"127.0.0.1:{job.ports[0]}", job.key, method, path, content)


def request(host: str, key: str, method: str, path: str, content: Any = None) -> bytes:
    """The bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\n"
    if content is None:
        return f"{head}\r\n".encode()
    body = msgspec.json.encode(content)
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
