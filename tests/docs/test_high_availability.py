"""The guide on high availability: its URL leads to the writable node, and its doctor output is real."""

from __future__ import annotations

import re
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from dibs.store.postgres import doctor
from dibs.store.postgres.connection import connection_string

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "high-availability.md").read_text(encoding="utf-8")


def test_the_url_of_the_guide_names_all_nodes_and_requires_a_writable_one() -> None:
    [url] = re.findall(r"DIBS_URL='(postgresql://[^']+)'", GUIDE)
    understood = conninfo_to_dict(connection_string(url))
    assert understood["host"].split(",") == ["db1", "db2", "db3"]  # type: ignore[union-attr]
    assert understood["target_session_attrs"] == "read-write"
    assert int(understood["connect_timeout"] or 0) == 3


def test_the_guide_names_the_settings_that_the_doctor_reports() -> None:
    for setting in ("synchronous_commit", "synchronous_standby_names"):
        assert setting in GUIDE
        assert setting in doctor._LOCAL_HINT + doctor._ASYNCHRONOUS_HINT
