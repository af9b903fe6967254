"""Fields, image modes, sparse files, field expressions and sample types match Energon's results."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fastpack
from fastpack import FieldAccessError, WebDataset
from fastpack.webdataset.decoding import Decoder
from fastpack.webdataset.field_map import field_access, split_field_access
from fastpack.webdataset.images import IMAGE_MODES


@pytest.fixture(scope="module")
def reading(golden: Path) -> Path:
    return golden / "energon" / "reading"


@pytest.fixture(scope="module")
def expected(reading: Path) -> Any:
    return json.loads((reading / "expected.json").read_text())


def described(value: Any) -> Any:
    """Describe values as the script that wrote the golden files does."""
    if isinstance(value, Image.Image):
        return {"image": value.mode, "size": list(value.size), "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
    if isinstance(value, np.ndarray):
        data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"array": value.dtype.str, "shape": list(value.shape), "sha256": data}
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, dict):
        return {key: described(one) for key, one in value.items()}
    return [described(one) for one in value] if isinstance(value, (list, tuple)) else value


def same(found: Any, wanted: Any) -> bool:
    """Compare JSON values: NaN equals NaN, 1 differs from 1.0, a tensor equals an array."""
    if isinstance(wanted, dict) and "tensor" in wanted:
        wanted = wanted["tensor"]
    return json.dumps(described(found)) == json.dumps(wanted)


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_samples_match_energons_loader(reading: Path, expected: Any, io: Any, backend: str) -> None:
    dataset = WebDataset(reading, "train", trust_code=True, io=io)
    assert len(dataset) == len(expected["samples"]) == 9
    for sample, wanted, names in zip(dataset, expected["samples"], expected["file_names"], strict=True):
        assert type(sample) is fastpack.CrudeSample
        assert (
            list(sample.__sources__ if hasattr(sample, "__sources__") else sample["__sources__"][0].file_names) == names
        )
        assert sample.keys() - {"__sources__"} == wanted.keys()
        for field, value in wanted.items():
            if field != "__restore_key__":  # Energon's value contains the names of wrapping datasets
                assert same(sample[field], value), field


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_fields_by_name_match_those_of_the_sample(reading: Path, expected: Any, io: Any) -> None:
    """Energon's reads by name return packed data of sparse files, and the first of a repeated field."""
    dataset = WebDataset(reading, trust_code=True, io=io)
    for wanted in expected["samples"]:
        for field, value in wanted.items():
            if not field.startswith("__"):
                assert same(dataset.get_file(f"{wanted['__key__']}.{field}"), value), field
    assert dataset.get_file("twice.txt") == "last"


def test_code_is_not_run_unless_it_is_trusted(reading: Path) -> None:
    with pytest.raises(fastpack.UntrustedCode, match="trust_code=True") as raised:
        WebDataset(reading)[0]
    assert "in sample 'kinds' of" in raised.value.__notes__[0]
    assert WebDataset(reading, part_filter=lambda field: field != "pickle")[0]["cls"] == 12


def test_every_image_mode(reading: Path, expected: Any) -> None:
    raw = WebDataset(reading, raw=True).get("images/k")
    assert set(IMAGE_MODES) == expected["images"].keys()
    for mode, images in expected["images"].items():
        for field, wanted in images.items():
            found = Decoder(mode)(field, raw[field])
            assert same(found, wanted), (mode, field)
            if isinstance(found, np.ndarray):
                assert found.flags.c_contiguous
                assert found.flags.writeable


def test_field_expressions(reading: Path, expected: Any) -> None:
    sample = dict(WebDataset(reading, trust_code=True)[0])
    for expression, wanted in expected["fields"]:
        if isinstance(wanted, dict) and "error" in wanted:
            with pytest.raises(FieldAccessError):
                field_access(sample, split_field_access(expression))
        else:
            assert same(field_access(sample, split_field_access(expression)), wanted), expression


def test_sample_types_match_energons(expected: Any) -> None:
    assert len(expected["types"]) == 12
    for name, wanted in expected["types"].items():
        kind = getattr(fastpack, name)
        found = [[field.name, None if field.default is MISSING else [field.default]] for field in fields(kind)]
        assert found == wanted
        assert kind.__slots__ is not None
        with pytest.raises(TypeError):
            kind("key", ("Webdataset", 0))  # keywords only
