"""The generated pages of the documentation site: commands and the API reference."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from command_line import actions, commands

import fastpack

pytest.importorskip("sphinx", reason="sphinx is not installed; `pip install -e '.[docs]'`")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_extensions"))

import api_pages
import command_reference


def test_the_command_reference_has_every_command_alias_and_option() -> None:
    page = command_reference.reference()
    for name, parser in commands().items():
        assert f"## {name}\n" in page or f"`{name}`" in page
        shown = [action for action in actions(parser) if action.help != argparse.SUPPRESS]
        options = {option for action in shown for option in action.option_strings} - {"-h", "--help"}
        assert not {option for option in options if "_" not in option and option not in page}


def test_the_api_reference_has_a_page_for_every_public_object() -> None:
    names = set(api_pages.public_objects("fastpack"))
    assert {"inspect", "pack", "StatefulDataLoader"} <= names
    assert set(fastpack.__all__) - names == {"energon", "kernels", "modalities", "tatm", "webdataset"}
    assert ".. autoclass:: fastpack.PackedFile" in api_pages.object_page("fastpack.PackedFile", fastpack.PackedFile)
    assert ".. autoexception:: fastpack.E" in api_pages.object_page("fastpack.E", fastpack.FormatError)
    assert ".. autofunction:: fastpack.pack" in api_pages.object_page("fastpack.pack", fastpack.pack)


def test_an_object_of_two_namespaces_has_one_page() -> None:
    listed = {"WebDataset": ("fastpack.WebDataset", fastpack.WebDataset), "Own": ("fastpack.energon.Own", object)}
    page = api_pages.namespace_page("fastpack.energon", listed)
    assert "| [`WebDataset`](fastpack.WebDataset.rst) | " in page
    assert "\nOwn <fastpack.energon.Own>\n" in page
    assert "WebDataset <" not in page
