"""The configuration of a server, validated when it is created.

A new option also needs a parameter of `dibs server` (`cli/server.py`). Keep the refusals: they protect servers that are
reachable from other machines.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from dibs.errors import InvalidValue

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
Network = IPv4Network | IPv6Network

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The address, authentication and timing of a server.

    `keys`: every request needs an API key. Without keys every client has full access, so this is refused unless the
    address is loopback. `allowed_hosts`: accepted values of the Host header, in addition to the server's own address;
    this prevents a web page from reaching a server on loopback through DNS rebinding. `trusted_proxies`: addresses or
    networks of proxies whose X-Forwarded-For is trusted. `prefix`: the path under which a proxy offers the server; it
    may remove the prefix from a request or pass it on. `grace`: seconds that open requests have to end when the server
    stops. `upkeep`: run a round of upkeep every `upkeep_every` seconds.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    keys: bool = True
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    prefix: str = ""
    access_log: bool = True
    grace: float = 10.0
    upkeep: bool = True
    upkeep_every: float = 1.0

    def __post_init__(self) -> None:
        if not self.keys and not is_loopback(self.host):
            raise InvalidValue(
                f"A server without keys on {self.host} would accept every request.",
                hint="Create keys with `dibs keys create`, or listen on 127.0.0.1.",
            )
        if not 0 <= self.port <= 65535:
            raise InvalidValue(
                f"{self.port} is not a valid port.", hint="Use a port from 1 to 65535, or 0 for any free port."
            )
        if not 0 <= self.grace < math.inf:
            raise InvalidValue(f"{self.grace} is not a valid grace.", hint="Use 0 or more seconds.")
        if _PREFIX.fullmatch(self.prefix) is None:
            raise InvalidValue(
                f"{self.prefix!r} is not a valid prefix.", hint="Use a path without a slash at the end: /queue."
            )
        for host in self.allowed_hosts:
            _check_name(host)
        self.networks()

    @property
    def hosts(self) -> frozenset[str] | None:
        """The accepted host names; None for any."""
        if "*" in self.allowed_hosts:
            return None
        own = LOOPBACK_NAMES if is_loopback(self.host) or is_any(self.host) else frozenset()
        return own | {host.lower().strip("[]") for host in (self.host, *self.allowed_hosts)}

    @property
    def any_address(self) -> bool:
        """True if any IP address is accepted as host, because the server listens on all addresses.

        DNS rebinding needs a name, so IP addresses are safe.
        """
        return is_any(self.host)

    def networks(self) -> tuple[Network, ...]:
        """Return the networks of trusted proxies."""
        return tuple(_network(text) for text in self.trusted_proxies)


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """Return True for the unspecified address, which means all addresses of this machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_name(host: str) -> None:
    bare = host.strip("[]")
    if not bare or "/" in bare or (":" in bare and not _is_address(bare)):
        raise InvalidValue(
            f"{host!r} is not a valid host name.", hint="Use only the name, without scheme and port: dibs.example.com."
        )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        raise InvalidValue(
            f"{text!r} is not a valid address of a proxy.",
            hint="Use an address or a network: 10.0.0.5, 10.0.0.0/24, ::1.",
        ) from None
