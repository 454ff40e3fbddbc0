"""`from dibs import Dibs` imports what an enqueue needs; the modules of other features are imported when they are used.

A new module in this list makes every program start later. Import it in the function that needs it, if few programs do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CLIENT = {
    "dibs",
    "dibs.batch_size",
    "dibs.client",
    "dibs.client_base",
    "dibs.encoded",
    "dibs.errors",
    "dibs.handlers",
    "dibs.handlers.arguments",
    "dibs.handlers.context",
    "dibs.handlers.custom_types",
    "dibs.handlers.endings",
    "dibs.handlers.handler",
    "dibs.handlers.hooks",
    "dibs.handlers.values",
    "dibs.json_values",
    "dibs.model",
    "dibs.model.change",
    "dibs.model.checks",
    "dibs.model.claim",
    "dibs.model.cron",
    "dibs.model.declaration",
    "dibs.model.explanation",
    "dibs.model.finalization",
    "dibs.model.history",
    "dibs.model.key",
    "dibs.model.limit",
    "dibs.model.registry",
    "dibs.model.retention",
    "dibs.model.retry",
    "dibs.model.schedule",
    "dibs.model.search",
    "dibs.model.statistics",
    "dibs.model.task",
    "dibs.model.timing",
    "dibs.model.unique",
    "dibs.model.upkeep",
    "dibs.model.workflow",
    "dibs.observe",
    "dibs.observe.instruments",
    "dibs.observe.log",
    "dibs.observe.metered",
    "dibs.observe.metrics",
    "dibs.observe.tracing",
    "dibs.procedures",
    "dibs.redaction",
    "dibs.store",
    "dibs.store.contract",
    "dibs.store.migrate",
    "dibs.store.open",
    "dibs.store.operation",
    "dibs.store.wakeups",
    "dibs.version",
    "dibs.worker",
    "dibs.worker.config",
    "dibs.workflow",
    "dibs.workflow.builder",
    "dibs.workflow.task_data",
}
"""The modules of dibs that `from dibs import Dibs` imports."""

ASYNC_CLIENT = CLIENT - {"dibs.client"} | {
    "dibs.client_async",
    "dibs.model.async_task",
    "dibs.model.async_workflow",
    "dibs.workflow.async_flow",
}

FEATURES = {
    "dibs.events",
    "dibs.handlers.batch",
    "dibs.handlers.codecs",
    "dibs.handlers.lifespan",
    "dibs.handlers.log_capture",
    "dibs.handlers.middleware",
    "dibs.handlers.outcome_hooks",
    "dibs.handlers.retry_rules",
    "dibs.logs",
    "dibs.many",
    "dibs.worker.batch_lane",
    "dibs.worker.hook_runner",
    "dibs.worker.lifespan",
    "dibs.worker.log_writer",
    "dibs.worker.process_lane",
    "dibs.worker.queue_bounds",
}
"""Modules that a program without these features does not import."""

USES = {
    "dibs.handlers.lifespan": "@app.lifespan\ndef opens():\n    yield",
    "dibs.handlers.middleware": "@app.middleware\ndef around(ctx, call_next):\n    return call_next()",
    "dibs.handlers.outcome_hooks": "@app.on_dead\ndef dead(ended): pass",
    "dibs.handlers.retry_rules": "@app.task(retry_on=OSError)\ndef other(): pass",
    "dibs.handlers.batch": "@app.batch_task\ndef each(items: list[dibs.BatchItem[dict]]): pass",
    "dibs.many": "copy.map([1])",
}
"""The features that a program can use without a worker, by the module that they import."""

PROGRAM = """
import dibs
from dibs import Dibs
app = Dibs({url!r})
@app.task(max_attempts=3, backoff=dibs.Backoff(1, 5))
def copy(number: int) -> int:
    return number
"""


def imported(program: str) -> set[str]:
    """The modules that this program imports beyond those of the start of Python."""
    ending = "import json; print(json.dumps([*set(sys.modules) - before]))"
    code = f"import sys\nbefore = set(sys.modules)\n{program}\n{ending}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def of_dibs(modules: set[str]) -> set[str]:
    """The modules of dibs among these."""
    return {each for each in modules if each.partition(".")[0] == "dibs"}


def test_the_import_of_the_clients_imports_no_module_beyond_the_list() -> None:
    sync, of_async = imported("from dibs import Dibs"), imported("from dibs import AsyncDibs")
    assert of_dibs(sync) == CLIENT
    assert of_dibs(of_async) == ASYNC_CLIENT
    foreign = {name.partition(".")[0] for name in sync | of_async} - set(sys.stdlib_module_names) - {"dibs"}
    assert foreign == {"msgspec", "typing_extensions"}  # typing_extensions by msgspec, where it is installed


def test_a_worker_of_plain_handlers_imports_no_module_of_a_feature_that_it_does_not_use(tmp_path: Path) -> None:
    program = PROGRAM.format(url=f"sqlite:///{tmp_path}/dibs.db")
    modules = imported(f"{program}\ncopy.enqueue(7)\napp.worker(burst=True).run()\nassert copy.get(1).result == 7")
    assert "dibs.worker.worker" in modules
    assert modules & FEATURES == set()


def test_each_feature_imports_its_module_on_first_use(tmp_path: Path) -> None:
    program = PROGRAM.format(url=f"sqlite:///{tmp_path}/dibs.db")
    for module, use in USES.items():
        assert module in imported(f"{program}\n{use}"), use
