"""Every scenario that there is: each module of this folder that has a SCENARIO."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tests.stress.scenario import Scenario


def all_scenarios() -> list[Scenario]:
    """By name."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    modules = [
        importlib.import_module(f"tests.stress.{name}") for name in names if not name.startswith(("test_", "__"))
    ]
    return [module.SCENARIO for module in modules if hasattr(module, "SCENARIO")]
