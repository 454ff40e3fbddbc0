"""`dibs server`: serve the HTTP API of a database, in this process or in several processes that share a port."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dibs.cli import text
from dibs.cli.context import DEFAULT_URL, command_context
from dibs.cli.options import JsonOption, LogFormatOption, LogLevelOption, UrlOption, check_level, log_options
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.server.config import ServerConfig
    from dibs.store.contract import DatabaseStore

LISTENING = "DIBS_LISTENING"
"""Environment variable with the file descriptor of the socket that the server processes share."""

logger = logging.getLogger("dibs.server")


def server(
    ctx: typer.Context,
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 or :: for all addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port to listen on; 0: any free port.")] = 8787,
    processes: Annotated[
        int,
        typer.Option("--processes", metavar="N", help="Number of server processes; one that dies is restarted.", min=1),
    ] = 1,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Accept requests without an API key; only on loopback.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="Accepted Host header; * for any. Repeatable."),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-proxy", metavar="ADDRESS", help="Proxy (or network) whose X-Forwarded-For is trusted. Repeatable."
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="PATH", help="Path under which a proxy offers the server, such as /queue."),
    ] = "",
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", help="Maximum duration of open requests after SIGTERM.")
    ] = 10.0,
    no_access_log: Annotated[bool, typer.Option("--no-access-log", help="Do not log each request.")] = False,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the HTTP API and the dashboard until SIGTERM or Ctrl-C; open requests are answered first."""
    check_level(log_level)
    context = command_context(ctx, url, as_json)
    check_database(context.url)
    context.check_migrated()
    config = _config(
        host=host,
        port=port,
        keys=not no_keys,
        allowed_hosts=tuple(allowed_host or ()),
        trusted_proxies=tuple(trust_proxy or ()),
        prefix=prefix,
        access_log=not no_access_log,
        grace=grace,
    )
    _configure_log(log_level, log_format)
    code = _serve(context.url, config, processes, log_options(log_level, log_format))
    context.output.print_json({"success": code == 0, "exit_code": code})
    raise typer.Exit(code)


def check_database(url: str) -> None:
    """Raise InvalidValue for the URL of another server."""
    if url.startswith(("http:", "https:")):
        raise InvalidValue(
            f"{text.public_url(url)} is a server; a server needs a database.",
            hint="Use --url with sqlite:///file.db or postgresql://user@host/database.",
        )


def _config(**options: Any) -> ServerConfig:
    check_server_installed()
    from dibs.server.config import ServerConfig

    return ServerConfig(**options)


def check_server_installed() -> None:
    """Raise InvalidValue if the packages of the server are not installed."""
    try:
        import dibs.server.run  # noqa: F401
    except ImportError as error:
        raise InvalidValue(
            f"The server needs packages that are not installed ({error}).", hint="pip install 'dibs[server]'"
        ) from None


def _configure_log(level: str, log_format: str) -> None:
    from dibs.cli.logs import configure

    configure(level, log_format)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # uvicorn logs its start and each malformed request


def _serve(url: str, config: ServerConfig, processes: int, log: list[str]) -> int:
    from dibs.server.run import allow_many_connections, listen

    if processes > 1 and sys.platform == "win32":
        raise InvalidValue(
            "Windows cannot share a port between processes.",
            hint="Start one process, or several servers on different ports.",
        )
    allow_many_connections()
    inherited = os.environ.pop(LISTENING, None)
    if inherited is not None:
        return _run(url, config, socket.socket(fileno=int(inherited)), announced=True)
    listening = listen(config.host, config.port)
    if processes == 1:
        return _run(url, config, listening)
    return _run_several(url, config, listening, processes, log)


def _run(url: str, config: ServerConfig, listening: socket.socket, *, announced: bool = False) -> int:
    """Serve in this process. `announced`: the supervisor has already logged the start."""
    from dibs.observe.sharing import shared
    from dibs.server.app import create_app
    from dibs.server.run import Server
    from dibs.supervisor import end_with_the_supervisor

    listening.set_inheritable(False)
    store = _open(url)
    end_with_the_supervisor()

    def announce() -> None:
        if not announced:
            _log_start(url, config, listening, store_has_key)

    store_has_key = announced or not config.keys or _has_key(store)
    with shared():
        Server(create_app(store, config), announce, alone=True).run([listening])
    return 0


def _run_several(url: str, config: ServerConfig, listening: socket.socket, processes: int, log: list[str]) -> int:
    from dibs.supervisor import supervise

    store = _open(url)
    has_key = not config.keys or _has_key(store)
    store.close()
    os.environ["DIBS_URL"] = url  # not on the command line: every user of the machine can read that
    _log_start(url, config, listening, has_key, processes)
    return supervise(
        [_command(config, log)] * processes,
        what="server",
        handed={LISTENING: listening.fileno()},
        stopping=lambda *_: listening.close(),
    )


def _open(url: str) -> DatabaseStore:
    """Open and migrate the store. One that is unreachable is reported now, not with the first request."""
    from dibs.store.open import open_store

    store = cast("DatabaseStore", open_store(url))  # check_database refused all other URLs
    store.run(store.upkeep.next_due())
    return store


def _has_key(store: DatabaseStore) -> bool:
    return any(key.live for key in store.run(store.keys.list_keys()))


def _log_start(url: str, config: ServerConfig, listening: socket.socket, has_key: bool, processes: int = 1) -> None:
    from dibs.server.config import is_loopback
    from dibs.server.run import url_of

    server_url = url_of(config.host, listening)
    several = f" with {processes} processes" if processes > 1 else ""
    logger.info("listening on %s%s", server_url, several, extra={"event": "server.started", "url": server_url})
    logger.info("the API is documented at %s/api/docs; the store is %s", server_url, text.public_url(url))
    if not config.keys:
        logger.info("API keys are off: every program on this machine has full access")
    if not has_key:
        logger.warning("there is no API key yet, so every request is refused; create one: %s", _key_command(url))
        if not is_loopback(config.host):
            logger.warning("until then every request to %s gets 401", server_url)


def _key_command(url: str) -> str:
    command = "dibs keys create NAME --scopes enqueue,work,read,admin"
    if url == DEFAULT_URL:
        return command
    shown = text.public_url(url)
    if shown != url:
        return f"{command} --url {shlex.quote(shown)} (with its password and options)"
    return f"{command} --url {shlex.quote(url)}"


def _command(config: ServerConfig, log: list[str]) -> list[str]:
    """Return the command of one of several server processes."""
    command = [sys.executable, "-m", "dibs", "server", "--host", config.host, "--port", str(config.port)]
    command += ["--grace", str(config.grace), *log]
    command += ["--no-keys"] if not config.keys else []
    command += ["--prefix", config.prefix] if config.prefix else []
    command += ["--no-access-log"] if not config.access_log else []
    command += [f"--allowed-host={name}" for name in config.allowed_hosts]
    return command + [f"--trust-proxy={address}" for address in config.trusted_proxies]
