"""The configuration of a server: invalid settings are refused before the server starts."""

from __future__ import annotations

from typing import Any

import pytest

from dibs.errors import InvalidValue
from dibs.server.config import ServerConfig


@pytest.mark.parametrize(
    "settings",
    [
        {"keys": False, "host": "0.0.0.0"},
        {"keys": False, "host": "10.0.0.1"},
        {"keys": False, "host": "::"},
        {"port": 65536},
        {"port": -1},
        {"grace": -1},
        {"grace": float("inf")},
        {"grace": float("nan")},
        {"allowed_hosts": ("https://dibs.example.com",)},
        {"allowed_hosts": ("dibs.example.com:443",)},
        {"allowed_hosts": ("",)},
        {"trusted_proxies": ("proxy.example.com",)},
        {"trusted_proxies": ("10.0.0.1/8",)},
    ],
    ids=str,
)
def test_invalid_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        ServerConfig(**settings)


def test_a_server_without_keys_may_listen_on_every_address_of_loopback() -> None:
    for host in ("localhost", "127.0.0.1", "127.0.0.53", "::1"):
        assert not ServerConfig(keys=False, host=host).keys
