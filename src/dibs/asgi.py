"""dibs in FastAPI, Starlette and other ASGI applications.

`lifespan` opens a client with the application, and runs a worker inside if wanted; `server` is the HTTP API and the
dashboard to mount under a path; `async_client`, `sync_client` and `joined` are dependencies for FastAPI. Needs the
extra `server`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from dibs.client import Dibs
from dibs.client_async import AsyncDibs
from dibs.client_base import ClientBase
from dibs.errors import InvalidValue

try:
    from starlette.requests import HTTPConnection

    from dibs.server.config import ServerConfig
    from dibs.server.mounted import MountedServer, check_reachable, close
    from dibs.server.sign_in import SignedIn, SignIn, SignInFunction
except ImportError as error:
    raise ImportError(
        f"dibs.asgi needs packages that are not installed ({error}). Install them: pip install 'dibs[server]'"
    ) from error
from dibs.worker.config import WorkerOptions

__all__ = [
    "MountedServer",
    "SignInFunction",
    "SignedIn",
    "async_client",
    "joined",
    "lifespan",
    "server",
    "sync_client",
]

WebLifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
WebLifespanWithState = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
Client = TypeVar("Client", bound=ClientBase[Any])

CLIENT, WORKER = "dibs", "dibs_worker"
"""The names under which a request finds the client and the worker: `request.state.dibs`."""


def server(
    client: ClientBase[Any],
    *,
    sign_in: SignInFunction | None = None,
    sign_in_url: str | None = None,
    allowed_hosts: Iterable[str] = ("*",),
    access_log: bool = False,
    upkeep: bool = True,
) -> MountedServer:
    """The HTTP API and the dashboard, to mount under a path: `web.mount("/queue", dibs.asgi.server(app))`.

    `sign_in`: a function, plain or async, from a request to the rights of its user: a SignedIn, or only the scopes;
    None refuses the request. It is called for every request. Without it, requests need an API key of dibs, and the
    dashboard has its own sign-in page; with it, programs may still send an API key.
    `sign_in_url`: the page of your application to which the dashboard sends a user who is not signed in, with the page
    to return to in the parameter `next`; without it the user gets an error page.
    `allowed_hosts`: the accepted values of the Host header, all by default. Name them if `sign_in` accepts requests
    without a cookie or a header, for example by their address. `upkeep`: recover and prune tasks also without a worker.
    """
    config = ServerConfig(allowed_hosts=tuple(allowed_hosts), access_log=access_log, upkeep=upkeep)
    return MountedServer(client, config, None if sign_in is None else SignIn(sign_in, sign_in_url))


def lifespan(
    client: ClientBase[Any],
    *,
    worker: bool | WorkerOptions = False,
    around: WebLifespan | None = None,
) -> WebLifespanWithState:
    """The lifespan of an application that uses the client: `FastAPI(lifespan=dibs.asgi.lifespan(app, worker=True))`.

    It opens the client's store, starts the servers of this client that are mounted in the application, and starts a
    worker if `worker` is true or holds the options of one (`worker={"concurrency": 20}`). At the end the worker has its
    grace period, then the servers stop, then the client is closed. `around`: your own lifespan, which is begun before
    and ended after all this.
    """

    @asynccontextmanager
    async def run(web: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(around(web)) if around is not None else None
            stack.push_async_callback(close, client)
            await check_reachable(client)
            for each in _mounted(web):
                if each.client._held is client._held:
                    await stack.enter_async_context(each)
            started = await stack.enter_async_context(client.worker(**_options(worker))) if worker else None
            if hasattr(web, "state"):  # for clients of tests that pass no state on to requests
                setattr(web.state, CLIENT, client)
            yield {**(state or {}), CLIENT: client, WORKER: started}

    return run


async def async_client(connection: HTTPConnection) -> AsyncDibs:
    """The AsyncDibs of the application's lifespan: `Annotated[dibs.AsyncDibs, Depends(dibs.asgi.async_client)]`."""
    return _client(connection, AsyncDibs)


async def sync_client(connection: HTTPConnection) -> Dibs:
    """The Dibs of the application's lifespan: `Annotated[dibs.Dibs, Depends(dibs.asgi.sync_client)]`."""
    return _client(connection, Dibs)


def joined(session: Callable[..., Any]) -> Callable[..., Awaitable[AsyncDibs]]:
    """A dependency of FastAPI: the AsyncDibs of the lifespan in the transaction of the request's session.

    `session`: the dependency that gives the AsyncSession or AsyncConnection of SQLAlchemy. The tasks that the client
    enqueues are stored with your commit, or not at all.
    """
    from fastapi import Depends

    client_of_request, user_session = Depends(async_client), Depends(session)

    async def join(client: AsyncDibs = client_of_request, session: Any = user_session) -> AsyncDibs:
        return client.on(session)

    return join


def _client(connection: HTTPConnection, kind: type[Client]) -> Client:
    shared = getattr(connection.scope.get("app"), "state", None)
    found = getattr(connection.state, CLIENT, getattr(shared, CLIENT, None))
    if found is None:
        raise InvalidValue(
            "The application has no client of dibs.",
            hint="Use FastAPI(lifespan=dibs.asgi.lifespan(app)), and in tests `with TestClient(web)`.",
        )
    if not isinstance(found, kind):
        raise InvalidValue(
            f"The client of the application is a {type(found).__name__}, not a {kind.__name__}.",
            hint="Use dibs.asgi.async_client for an AsyncDibs, and dibs.asgi.sync_client for a Dibs.",
        )
    return found


def _options(worker: bool | WorkerOptions) -> WorkerOptions:
    return {} if isinstance(worker, bool) else worker


def _mounted(web: Any) -> Iterator[MountedServer]:
    """The servers among the routes of an application, also in a mounted application and behind middleware of a
    mount."""
    for route in getattr(web, "routes", ()):
        inner = getattr(route, "_base_app", getattr(route, "app", None))
        if isinstance(inner, MountedServer):
            yield inner
        else:
            yield from _mounted(inner if inner is not None else route)
