"""Coalescing: calls of one kind that wait at the same moment are run as one batch.

A call that finds no other call of its kind running is run at once: nothing waits for a timer. Calls that arrive while a
call of their kind runs wait for its end and are then run as one batch: one statement, one commit. So the more calls
arrive at once, the less each call costs. Each call gets its own result or its own error, and a call that is interrupted
or cancelled takes nothing from the others.

`Coalescer` is for threads, `AsyncCoalescer` for an event loop. Each call brings the function that runs a batch. All
calls of a key bring the same function: it gets the key and the items, and returns for each item a result, an error, or
RUN_ALONE. An error that it raises is the error of every item. No coalescer keeps the function: it belongs to the store,
which could otherwise never be collected.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from dibs.errors import OutcomeUnknown

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")

RunBatch = Callable[[Key, Sequence[Item]], Sequence[Any]]
RunBatchAsync = Callable[[Key, Sequence[Item]], Awaitable[Sequence[Any]]]

BATCH_ITEMS = 64
"""Items of a batch at most, so that the first item does not wait long for the last."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of items after which a batch is full: a large batch would hold the write lock of SQLite for long."""

RUN_ALONE = object()
"""The result of an item that is to be run again in a batch of its own. For a batch that was refused as a whole, perhaps
because of one item: nothing of it may have been stored."""

_UNANSWERED = object()

_AsyncCall = tuple[Item, asyncio.Future[Any]]


def _interrupted() -> OutcomeUnknown:
    return OutcomeUnknown("The write was interrupted.")


class Coalescer(Generic[Key, Item, Result]):
    """Coalesces the calls of threads.

    One of the waiting threads, the leader, runs the batch for all of them, so that no call waits for another thread to
    start. A leader that is interrupted (Ctrl-C), at any instruction, answers the calls of its batch and hands the lead
    on (decision 39).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Key, _CallQueue[Item, Result]] = {}

    def run(self, key: Key, item: Item, run_batch: RunBatch[Key, Item]) -> Result:
        """Run the item, alone or in a batch with other items of the key, and return its result."""
        own: _Call[Item, Result] = _Call(item)
        try:
            queue = self._enter(key, own)
            if queue is None:
                [own.answer] = run_batch(key, [item])
                self._leave(key, own)
                return own.result()
            own.wait()
            if own.unanswered:
                self._lead(key, queue, run_batch)
        except BaseException:
            self._leave(key, own)
            raise
        if own.answer is RUN_ALONE:
            [own.answer] = run_batch(key, [item])
        return own.result()

    def _enter(self, key: Key, own: _Call[Item, Result]) -> _CallQueue[Item, Result] | None:
        """Return the queue in which the call now waits; None if no call of the key is running, so that it may begin."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = _CallQueue(own)
                self._queues[key] = queue
                return None
            queue.waiting.append(own)
            return queue

    def _lead(self, key: Key, queue: _CallQueue[Item, Result], run_batch: RunBatch[Key, Item]) -> None:
        """Run the calls that wait now as one batch, and let the next call lead."""
        with self._lock:
            queue.take_batch()
        batch = queue.batch
        answers: Sequence[Any]
        try:
            answers = run_batch(key, [call.item for call in batch])
        except Exception as error:
            answers = [error] * len(batch)
        own = batch[0]
        for call, answer in zip(batch, answers, strict=True):
            call.answer = answer
            call.wake()
        self._leave(key, own)

    def _leave(self, key: Key, own: _Call[Item, Result]) -> None:
        """Remove the call from its queue. If it leads, answer the other calls of its batch and hand the lead on."""
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                return
            queue.remove(own)
            if queue.leader is own and not queue.hand_on():
                del self._queues[key]


class _CallQueue(Generic[Item, Result]):
    """The calls that wait for the running call of their key, and the call that leads. Guarded by the coalescer's lock.

    The loops here are functions, not a part of the block that holds the lock, and a call is in `batch` before it leaves
    `waiting`: so an interrupt at any instruction leaves every call in one of the two (decision 39).
    """

    def __init__(self, leader: _Call[Item, Result]) -> None:
        self.leader = leader
        self.waiting: deque[_Call[Item, Result]] = deque()
        self.batch: list[_Call[Item, Result]] = []

    def take_batch(self) -> None:
        """Move the first of the waiting calls into the batch. The leader is the first of them."""
        batch: list[_Call[Item, Result]] = []
        self.batch = batch
        while self.waiting and len(batch) < BATCH_ITEMS:
            batch.append(self.waiting[0])
            self.waiting.popleft()

    def remove(self, call: _Call[Item, Result]) -> None:
        """Let the call wait no longer."""
        if call in self.waiting:
            self.waiting.remove(call)

    def hand_on(self) -> bool:
        """Let the first waiting call lead; False if no call waits. Calls of the batch without an answer get an error:
        the leader was interrupted."""
        for call in self.batch:
            self.remove(call)  # the interrupt came between the two lines that move a call
            if call.unanswered:
                call.answer = _interrupted()
                call.wake()
        self.batch = []
        if not self.waiting:
            return False
        self.leader = self.waiting[0]
        self.leader.wake()
        return True


class _Call(Generic[Item, Result]):
    """A call, and the thread that waits for its answer.

    `wake` is the lock's own method, which is C code: a signal is handled before or after it, never in between.
    """

    __slots__ = ("_woken", "answer", "item", "wake")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.answer: Any = _UNANSWERED
        self._woken = threading.Lock()
        self._woken.acquire()
        self.wake: Callable[[], None] = self._woken.release

    @property
    def unanswered(self) -> bool:
        """True if the call has no answer yet."""
        return self.answer is _UNANSWERED

    def wait(self) -> None:
        """Wait until the call is answered, or until it is its turn to lead."""
        self._woken.acquire()

    def result(self) -> Result:
        """Return the answer; raise it if it is an error."""
        result: Result = _result(self.answer)
        return result


def _result(answer: Any) -> Any:
    """The answer; raises it if it is an error."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _no_size(item: object) -> int:
    return 0


class AsyncCoalescer(Generic[Key, Item, Result]):
    """Coalesces the calls of one event loop.

    A task of its own runs a batch, so that the cancellation of one call does not cancel the others. A call that is
    cancelled while it waits is left out of the batch.

    `identity`: a batch never contains two items with the same identity. `size`: about how many bytes an item has, where
    that matters.
    """

    def __init__(
        self,
        identity: Callable[[Item], Hashable] = id,
        size: Callable[[Item], int] = _no_size,
    ) -> None:
        self._identity = identity
        self._size = size
        self._queues: dict[Key, deque[_AsyncCall[Item]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, key: Key, item: Item, run_batch: RunBatchAsync[Key, Item]) -> Result:
        """Run the item, alone or in a batch with other items of the key, and return its result."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            try:
                [answer] = await run_batch(key, [item])
            finally:
                self._start_next(key, queue, run_batch)
        else:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            queue.append((item, future))
            answer = await future
            if answer is RUN_ALONE:
                [answer] = await run_batch(key, [item])
        result: Result = _result(answer)
        return result

    def _start_next(self, key: Key, queue: deque[_AsyncCall[Item]], run_batch: RunBatchAsync[Key, Item]) -> None:
        """Start the next batch, if any call waits."""
        if not queue:
            del self._queues[key]
            return
        task = asyncio.create_task(self._run_next(key, queue, run_batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_next(self, key: Key, queue: deque[_AsyncCall[Item]], run_batch: RunBatchAsync[Key, Item]) -> None:
        batch = self._take_batch(queue)
        answers: Sequence[Any] = [_interrupted()] * len(batch)
        try:
            if batch:
                answers = await run_batch(key, [item for item, _ in batch])
        except Exception as error:
            answers = [error] * len(batch)
        finally:
            self._start_next(key, queue, run_batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _take_batch(self, queue: deque[_AsyncCall[Item]]) -> list[_AsyncCall[Item]]:
        """Take the next batch from the queue: up to an item whose identity the batch has already, and up to the limits
        of items and bytes."""
        identities: set[Hashable] = set()
        batch: list[_AsyncCall[Item]] = []
        size = 0
        while queue and len(batch) < BATCH_ITEMS and size < BATCH_BYTES:
            item, future = queue[0]
            if not future.done():
                if (identity := self._identity(item)) in identities:
                    break
                identities.add(identity)
                size += self._size(item)
                batch.append((item, future))
            queue.popleft()
        return batch
