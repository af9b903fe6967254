"""A fixture that imports the examples."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def load_example() -> Callable[[str], ModuleType]:
    """Return a function that imports examples/NAME.py."""

    def load(name: str) -> ModuleType:
        path = Path(__file__).parents[2] / "examples" / f"{name}.py"
        assert path.is_file(), f"examples/{name}.py is missing: the checkout is incomplete"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
