"""An ASGI application on an event loop in a thread of its own, for views of Django under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, TypeVar

from dibs.errors import StoreUnavailable
from dibs.server.stop_signals import on_stop_signal

T = TypeVar("T")

STREAM_SECONDS = 30.0
"""Seconds after which a stream ends. The browser connects again, and Django checks the user again."""

POLL_SECONDS = 3.0
"""Seconds for which a request that cannot be a stream waits for the first event."""

START_SECONDS, STOP_SECONDS = 8.0, 5.0
QUEUED = 16
"""Messages of an answer that wait for a slow browser."""

_EVENT = b"\ndata:"


class BridgedApplication:
    """An ASGI application that runs in a thread, for as long as `lifespan` is entered there."""

    def __init__(self, application: Any, lifespan: AbstractAsyncContextManager[Any]) -> None:
        self._application = application
        self._lifespan = lifespan
        self._loop = asyncio.new_event_loop()
        self._streams: set[Exchange] = set()
        self._signals: AbstractContextManager[None] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="dibs-dashboard", daemon=True)

    def start(self) -> None:
        """Start the thread and the application. Raises what the application raises, and StoreUnavailable if it does not
        start in time."""
        self._thread.start()
        try:
            self.run(_entered(self._lifespan), START_SECONDS)
        except BaseException as error:
            self._end_thread()
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(f"The database did not answer for {START_SECONDS:g} seconds.") from None
            raise

    def stop(self) -> None:
        """Stop the application and the thread."""
        with contextlib.suppress(TimeoutError):
            self.run(_left(self._lifespan), STOP_SECONDS)
        self._end_thread()

    def abandon(self) -> None:
        """Stop the thread at the end of the process, when Python starts no threads for the application any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)

    def ask(self, scope: dict[str, Any], body: bytes) -> Exchange:
        """Begin a request."""
        exchange = Exchange(self, body)
        exchange.task = asyncio.run_coroutine_threadsafe(exchange.run(self._application, scope), self._loop)
        return exchange

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and await its result on another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    @contextmanager
    def streaming(self, exchange: Exchange) -> Iterator[None]:
        """End the stream at a signal to stop: the ASGI server around Django waits for open streams."""
        if self._signals is None and threading.current_thread() is threading.main_thread():
            self._signals = on_stop_signal(self._end_streams)
            self._signals.__enter__()  # until the end of the process
        self._streams.add(exchange)
        try:
            yield
        finally:
            self._streams.discard(exchange)

    def _end_streams(self) -> None:
        for exchange in list(self._streams):
            self._loop.call_soon_threadsafe(exchange.end)

    def _end_thread(self) -> None:
        with contextlib.suppress(TimeoutError):
            self.run(_cancel_all(), STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


async def _entered(lifespan: AbstractAsyncContextManager[Any]) -> None:
    await lifespan.__aenter__()


async def _left(lifespan: AbstractAsyncContextManager[Any]) -> None:
    await lifespan.__aexit__(None, None, None)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Exchange:
    """One request to a bridged application, and the parts of its answer as they arrive."""

    def __init__(self, bridge: BridgedApplication, body: bytes) -> None:
        self._bridge = bridge
        self._body: bytes | None = body
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(QUEUED)
        self._gone = asyncio.Event()
        self.task: Any = None

    async def run(self, application: Any, scope: dict[str, Any]) -> None:
        """Let the application answer."""
        try:
            await application(scope, self._receive, self._messages.put)
        finally:
            if not self._gone.is_set():
                await self._messages.put(None)

    def start(self) -> dict[str, Any]:
        """Return the first message of the answer: status and headers. Raises what the application raised."""
        message = self._bridge.run(self._messages.get())
        if message is None:
            self.task.result()
            raise RuntimeError("The application has not answered.")
        return message

    def rest(self) -> bytes:
        """Return the body of the answer."""
        return self._bridge.run(self._collect())

    def first_event(self) -> bytes:
        """Return the first event of a stream, and leave the stream: the browser asks for the next one by itself."""
        return self._bridge.run(self._collect_event())

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield the parts of a stream for STREAM_SECONDS, on the event loop of Django."""
        now = asyncio.get_running_loop().time
        ends_at = now() + STREAM_SECONDS
        with self._bridge.streaming(self):
            try:
                while (left := ends_at - now()) > 0:
                    part = await self._bridge.run_async(self._part(left))
                    if part is None:
                        return
                    yield part
            finally:
                await self._bridge.run_async(self._leave())

    def end(self) -> None:
        """End the stream. Called on the loop of the application."""
        if self._messages.full():
            self._messages.get_nowait()
        self._messages.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _part(self, timeout: float) -> bytes | None:
        """Return the next part of the body; None at the end, or after `timeout` seconds."""
        try:
            message = await asyncio.wait_for(self._messages.get(), timeout)
        except TimeoutError:
            return None
        return None if message is None else message.get("body", b"")

    async def _collect(self) -> bytes:
        parts = []
        while (message := await self._messages.get()) is not None:
            parts.append(message.get("body", b""))
        return b"".join(parts)

    async def _collect_event(self) -> bytes:
        received = b""
        now = asyncio.get_running_loop().time
        ends_at = now() + POLL_SECONDS
        while _EVENT not in received and (left := ends_at - now()) > 0:
            part = await self._part(left)
            if part is None:
                break
            received += part
        await self._leave()
        return received

    async def _leave(self) -> None:
        """Tell the application that the browser is gone, and drop the rest of the answer."""
        self._gone.set()
        while not self._messages.empty():
            self._messages.get_nowait()
        if self.task is not None:
            self.task.cancel()
