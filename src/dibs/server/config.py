"""How a server is set up: one small frozen value, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from dibs.errors import InvalidValue

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where to listen, whom to let in.

    `keys`: every request needs an API key; without, whoever reaches the port may do everything, so that is for
    loopback only. `allowed_hosts`: names by which clients may call this server, beside its own address; it is what
    keeps a web page from reaching a server on loopback through a name that its owner points there (DNS rebinding).
    `trusted_proxies`: addresses or networks of proxies that are believed when they say for whom they ask.
    `grace`: seconds that requests have to end when the server is asked to stop. `upkeep`: it keeps the house, a round
    every `upkeep_every` seconds.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    keys: bool = True
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    access_log: bool = True
    grace: float = 10.0
    upkeep: bool = True
    upkeep_every: float = 1.0

    def __post_init__(self) -> None:
        if not self.keys and not is_loopback(self.host):
            raise InvalidValue(
                f"A server without keys on {self.host} would let everybody in.",
                hint="Make keys with `dibs keys create`, or listen on 127.0.0.1.",
            )
        if not 0 <= self.port <= 65535:
            raise InvalidValue(f"There is no port {self.port}.", hint="Use one of 1 to 65535, or 0 for any free one.")
        if not 0 <= self.grace < math.inf:
            raise InvalidValue(f"A grace of {self.grace} seconds makes no sense.", hint="Use 0 or more seconds.")
        for host in self.allowed_hosts:
            _check_name(host)
        self.networks()

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names clients may call it by; None where nobody can know them all."""
        if "*" in self.allowed_hosts:
            return None
        own = LOOPBACK_NAMES if is_loopback(self.host) or is_any(self.host) else frozenset()
        return own | {host.lower().strip("[]") for host in (self.host, *self.allowed_hosts)}

    @property
    def any_address(self) -> bool:
        """True if clients may call it by any address, because it listens on all that this machine has.

        An address needs no name that somebody could point elsewhere, so rebinding cannot make use of it.
        """
        return is_any(self.host)

    def networks(self) -> tuple[Network, ...]:
        """Where trusted proxies are."""
        return tuple(_network(text) for text in self.trusted_proxies)


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """True for the address that stands for all of this machine's."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_name(host: str) -> None:
    bare = host.strip("[]")
    if not bare or "/" in bare or (":" in bare and not _is_address(bare)):
        raise InvalidValue(
            f"{host!r} is no name of a host.", hint="Give the name alone: dibs.example.com, without scheme and port."
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
            f"{text!r} is no address of a proxy.", hint="Use an address or a network: 10.0.0.5, 10.0.0.0/24, ::1."
        ) from None
