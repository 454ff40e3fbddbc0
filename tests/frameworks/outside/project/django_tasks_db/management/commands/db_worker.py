"""The command db_worker of django-tasks-db, as far as its options have a meaning for a worker of dibs."""

from __future__ import annotations

import logging
import sys
from typing import Any

from django.core.management.base import BaseCommand

from dibs.django import app
from dibs.django.discovery import discover
from dibs.model.claim import DEFAULT_LEASE


class Command(BaseCommand):
    """Runs a worker of dibs."""

    def add_arguments(self, parser: Any) -> None:
        """See BaseCommand."""
        parser.add_argument("--queue-name", default="default")
        parser.add_argument("--worker-id")
        parser.add_argument("--batch", action="store_true")
        parser.add_argument("--no-startup-delay", dest="startup_delay", action="store_false")
        parser.add_argument("--interval", type=float)
        parser.add_argument("--lease", type=float, default=DEFAULT_LEASE)

    def handle(
        self, *, queue_name: str, worker_id: str | None, batch: bool, lease: float, verbosity: int, **_: Any
    ) -> None:
        """See BaseCommand."""
        if verbosity > 2:
            logging.basicConfig(level=logging.INFO, stream=self.stdout)
        discover()
        queues = None if queue_name == "*" else queue_name.split(",")
        worker = app.worker(
            queues=queues, worker_id=worker_id, burst=batch, poll=0.05, concurrency=1, lease=lease, upkeep_every=0.2
        )
        if code := worker.run():
            sys.exit(code)
        if verbosity > 2:
            self.stdout.write("The worker has stopped gracefully.")
