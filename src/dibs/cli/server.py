"""`dibs server`: the HTTP API before a database, in this process or in several that share a port."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dibs.cli import text
from dibs.cli.context import DEFAULT_URL, begin
from dibs.cli.options import Json, LogFormat, LogLevel, Url, check_level, log_options
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.server.config import ServerConfig
    from dibs.store.contract import DatabaseStore

LISTENING = "DIBS_LISTENING"
"""Names, to one of several processes, the socket that they share."""

logger = logging.getLogger("dibs.server")


def server(
    ctx: typer.Context,
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; 0.0.0.0 or :: for all addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 for any free one.")] = 8787,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", help="So many processes, restarted if they die.", min=1)
    ] = 1,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Let everybody in who reaches the port; only on loopback.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="A name clients may call it by; * for any. Repeatable."),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-proxy", metavar="ADDRESS", help="A proxy (or network) whose X-Forwarded-For is true. Repeatable."
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", help="How long requests may go on after SIGTERM.")
    ] = 10.0,
    no_access_log: Annotated[bool, typer.Option("--no-access-log", help="No line for each request.")] = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C; requests that it has begun are answered first."""
    check_level(log_level)
    session = begin(ctx, url, as_json)
    check_database(session.url)
    config = _config(
        host=host,
        port=port,
        keys=not no_keys,
        allowed_hosts=tuple(allowed_host or ()),
        trusted_proxies=tuple(trust_proxy or ()),
        access_log=not no_access_log,
        grace=grace,
    )
    _set_up_log(log_level, log_format)
    code = _serve(session.url, config, processes, log_options(log_level, log_format))
    session.output.answer({"success": code == 0, "exit_code": code})
    raise typer.Exit(code)


def check_database(url: str) -> None:
    """Refuse the URL of another server."""
    if url.startswith(("http:", "https:")):
        raise InvalidValue(
            f"{text.public_url(url)} is a server itself; a server needs the database.",
            hint="Use --url with sqlite:///file.db or postgresql://user@host/database.",
        )


def _config(**options: Any) -> ServerConfig:
    need_server()
    from dibs.server.config import ServerConfig

    return ServerConfig(**options)


def need_server() -> None:
    """Say what is missing before anything begins."""
    try:
        import dibs.server.run  # noqa: F401
    except ImportError as error:
        raise InvalidValue(
            f"The server needs packages that are not installed ({error}).", hint="pip install 'dibs[server]'"
        ) from None


def _set_up_log(level: str, log_format: str) -> None:
    from dibs.cli.logs import configure

    configure(level, log_format)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it tells of itself, and warns of every odd request


def _serve(url: str, config: ServerConfig, processes: int, log: list[str]) -> int:
    from dibs.server.run import allow_many_connections, listen

    if processes > 1 and sys.platform == "win32":
        raise InvalidValue(
            "Windows cannot share a port between processes.", hint="Start one server, or several on ports of their own."
        )
    allow_many_connections()
    handed = os.environ.pop(LISTENING, None)
    if handed is not None:
        return _run(url, config, socket.socket(fileno=int(handed)), told=True)
    listening = listen(config.host, config.port)
    if processes == 1:
        return _run(url, config, listening)
    return _run_several(url, config, listening, processes, log)


def _run(url: str, config: ServerConfig, listening: socket.socket, *, told: bool = False) -> int:
    """Serve in this process."""
    from dibs.observe.sharing import shared
    from dibs.server.app import create_app
    from dibs.server.run import Server
    from dibs.supervisor import end_with_the_supervisor

    listening.set_inheritable(False)
    store = _open(url)
    end_with_the_supervisor()

    def tell() -> None:
        if not told:
            _introduce(url, config, listening, store_has_key)

    store_has_key = told or not config.keys or _has_key(store)
    with shared():
        Server(create_app(store, config), tell, alone=True).run([listening])
    return 0


def _run_several(url: str, config: ServerConfig, listening: socket.socket, processes: int, log: list[str]) -> int:
    from dibs.supervisor import supervise

    store = _open(url)
    has_key = not config.keys or _has_key(store)
    store.close()
    os.environ["DIBS_URL"] = url  # not on their command lines, where everybody could read its password
    _introduce(url, config, listening, has_key, processes)
    return supervise(
        [_command(config, log)] * processes,
        what="server",
        handed={LISTENING: listening.fileno()},
        stopping=listening.close,
    )


def _open(url: str) -> DatabaseStore:
    """The store, opened and migrated: one that cannot be reached is told now, not with the first request."""
    from dibs.store.open import open_store

    store = cast("DatabaseStore", open_store(url))  # any other URL was refused
    store.run(store.upkeep.next_due())
    return store


def _has_key(store: DatabaseStore) -> bool:
    return any(key.live for key in store.run(store.keys.list_keys()))


def _introduce(url: str, config: ServerConfig, listening: socket.socket, has_key: bool, processes: int = 1) -> None:
    from dibs.server.config import is_loopback
    from dibs.server.run import url_of

    place = url_of(config.host, listening)
    several = f" with {processes} processes" if processes > 1 else ""
    logger.info("listening on %s%s", place, several, extra={"event": "server.started", "url": place})
    logger.info("the API is described at %s/api/docs; the tasks are in %s", place, text.public_url(url))
    if not config.keys:
        logger.info("no keys are asked for: every program on this machine may do everything")
    if not has_key:
        logger.warning("there is no API key yet, so nobody can get in; make one: %s", _key_command(url))
        if not is_loopback(config.host):
            logger.warning("until then every request to %s is refused with 401", place)


def _key_command(url: str) -> str:
    command = "dibs keys create NAME --scopes enqueue,work,read,admin"
    if url == DEFAULT_URL:
        return command
    shown = text.public_url(url)
    if shown != url:
        return f"{command} --url {shlex.quote(shown)} (with its password and options)"
    return f"{command} --url {shlex.quote(url)}"


def _command(config: ServerConfig, log: list[str]) -> list[str]:
    """The command of one of several processes."""
    command = [sys.executable, "-m", "dibs", "server", "--host", config.host, "--port", str(config.port)]
    command += ["--grace", str(config.grace), *log]
    command += ["--no-keys"] if not config.keys else []
    command += ["--no-access-log"] if not config.access_log else []
    command += [f"--allowed-host={name}" for name in config.allowed_hosts]
    return command + [f"--trust-proxy={address}" for address in config.trusted_proxies]
