"""A real Prometheus with the rules and the configuration that ship with dibs, hastened: what takes minutes there takes
seconds here."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.helpers.plain_http import NO_TLS
from tests.helpers.prometheus import needed
from tests.helpers.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
WINDOW = "[15s]"


def rules() -> list[dict[str, Any]]:
    """The alert rules."""
    found: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in found for rule in group["rules"]]


def write_rules(folder: Path, wanted: list[dict[str, Any]]) -> None:
    """Rules to use instead; JSON is YAML."""
    groups = {"groups": [{"name": "dibs", "rules": wanted}]}
    (folder / "alerts.yml").write_text(json.dumps(groups), encoding="utf-8")


def hastened(rule: Mapping[str, Any], threshold: tuple[str, str] | None) -> dict[str, Any]:
    """The rule with short windows, and another threshold where the real one takes too long."""
    expr = re.sub(r"\[\d+m\]", WINDOW, rule["expr"])
    if threshold is not None:
        assert threshold[0] in expr, f"{rule['alert']} has no {threshold[0]!r}"
        expr = expr.replace(*threshold)
    return {**rule, "expr": expr, "for": "1s"}


class Prometheus:
    """A Prometheus that runs."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self._process, self._log = process, log
        self._http = httpx.Client(verify=NO_TLS, base_url=url, timeout=10)
        until(self._is_ready, 30)

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """What the expression gives now."""
        answer = self._http.get("/api/v1/query", params={"query": expr})
        assert answer.status_code == 200, f"{expr}: {answer.text}"
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire."""
        alerts = self._http.get("/api/v1/alerts").json()["data"]["alerts"]
        return [alert for alert in alerts if alert["state"] == "firing"]

    def targets(self) -> list[dict[str, Any]]:
        """Whom it scrapes, and how that goes."""
        found: list[dict[str, Any]] = self._http.get("/api/v1/targets").json()["data"]["activeTargets"]
        return found

    def close(self) -> None:
        """Stop it."""
        self._http.close()
        self._process.terminate()
        self._process.wait(20)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def prometheus(folder: Path, key: str, targets: Mapping[str, list[str]]) -> Iterator[Prometheus]:
    """One that has the rules in the folder and scrapes these targets by job, in the way that the example does."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert targets.keys() == jobs.keys()
    for name, places in targets.items():
        [static] = jobs[name]["static_configs"]
        static["targets"] = places
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    (folder / "dibs.key").write_text(key, encoding="utf-8")
    with _started(folder) as running:
        yield running


@contextmanager
def _started(folder: Path) -> Iterator[Prometheus]:
    place = f"127.0.0.1:{_free_port()}"
    command = [
        needed("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={place}",
        "--log.level=warn",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as err, subprocess.Popen(command, cwd=folder, stdout=err, stderr=err) as process:
        try:
            running = Prometheus(process, f"http://{place}", log)
            yield running
            running.close()
        finally:
            process.kill()


def _free_port() -> int:
    """An unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
