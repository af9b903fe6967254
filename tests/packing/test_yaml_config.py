"""YAML scalars as OmegaConf reads them, and the path that interpolations see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastpack.packing.yaml_config import load_yaml


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e5", 100000.0),
        ("1E-4", 0.0001),
        ("1.5e3", 1500.0),
        ("1_0e1", 100.0),
        ("-2e+3", -2000.0),
        ("e5", "e5"),
        ("1e", "1e"),
        ("1e5x", "1e5x"),
        ("-.5", "-.5"),
        (".inf", float("inf")),
        ("2024-01-01", "2024-01-01"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("12:30:45", 45045),
        ("010", 8),
        ("yes", True),
        ("~", None),
        ("0x1F", 31),
        ("'1e5'", "1e5"),
    ],
)
def test_scalars_equal_those_of_omegaconf(scalar: str, value: Any, tmp_path: Path) -> None:
    """The expected values are those of OmegaConf 2.4."""
    (tmp_path / "c.yaml").write_text(f"key: {scalar}\n")
    found = load_yaml(tmp_path / "c.yaml")["key"]
    assert (found, type(found)) == (value, type(value))


def test_config_file_path_of_a_linked_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: ${modalities_env:config_file_path}\nb: ${modalities_env:config_folder_path}\n")
    assert load_yaml(tmp_path / "c.yaml", known_as="x/y.yaml") == {"a": "x/y.yaml", "b": "x"}
    assert load_yaml(tmp_path / "c.yaml")["a"] == str(tmp_path / "c.yaml")
