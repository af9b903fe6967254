"""Former names of arguments, and of their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastpack

NAMES = sorted(name for name in dir(fastpack) if name[0].islower() and callable(getattr(fastpack, name)))
WRITERS = [name for name in NAMES if "if_exists" in inspect.signature(getattr(fastpack, name)).parameters]


def test_every_function_that_writes_a_file_has_if_exists() -> None:
    assert {"create_raw_index", "merge_packed_data", "pack", "repair", "report", "write_manifest"} <= set(WRITERS)
    for name in NAMES:
        assert "file_existence_policy" not in inspect.signature(getattr(fastpack, name)).parameters, name


@pytest.mark.parametrize("name", [*WRITERS, "PackedWriter"])
def test_file_existence_policy_is_a_name_of_if_exists(name: str) -> None:
    function: Callable[..., Any] = getattr(fastpack, name)
    with pytest.raises(TypeError, match="both 'if_exists' and its former name 'file_existence_policy'"):
        function(if_exists="error", file_existence_policy="error")


def test_override_is_a_name_of_overwrite(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("{}\n")
    former: dict[str, Any] = {"file_existence_policy": "override"}
    assert fastpack.create_raw_index(source).written
    assert fastpack.create_raw_index(source, if_exists="overwrite").written
    assert fastpack.create_raw_index(source, **former).written
    assert fastpack.modalities.create_raw_data_index(source, None, "override").written
