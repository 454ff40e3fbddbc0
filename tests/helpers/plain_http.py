"""HTTP clients of tests."""

from __future__ import annotations

import ssl

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For `verify`: the servers of tests speak plain HTTP, and a client without this context reads all certificates of the
machine first, which takes some 20 ms of CPU time for each client."""
