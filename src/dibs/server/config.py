"""How a server is set up: one small frozen value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address

from dibs.errors import InvalidValue
from dibs.store.operations.tending import Retention

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where to listen, whom to let in.

    `keys`: every request needs an API key; without, whoever reaches the port may do everything, so that is for
    loopback only. `allowed_hosts`: names by which clients may call this server, beside its own address; it is what
    keeps a web page from reaching a server on loopback through a name that its owner points there (DNS rebinding).
    `grace`: seconds that requests have to end when the server is asked to stop. `upkeep`: it keeps the house, a round
    every `upkeep_every` seconds.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    keys: bool = True
    allowed_hosts: tuple[str, ...] = ()
    access_log: bool = True
    grace: float = 10.0
    upkeep: bool = True
    upkeep_every: float = 1.0
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if not self.keys and not is_loopback(self.host):
            raise InvalidValue(
                f"A server without keys on {self.host} would let everybody in.",
                hint="Make keys with `dibs keys create`, or listen on 127.0.0.1.",
            )

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names clients may call it by; None where nobody can know them all."""
        if "*" in self.allowed_hosts:
            return None
        own = LOOPBACK_NAMES if is_loopback(self.host) or _is_any(self.host) else frozenset({self.host.lower()})
        return own | {host.lower() for host in self.allowed_hosts}


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
