"""dataset.yaml: sample types, field maps, trusted functions, crude samples and cookers."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

import fastpack
from fastpack import Cooker, FieldAccessError, FormatError, TextSample, UntrustedCode, WebDataset, basic_sample_keys

MEMBERS = [("k.txt", b"text"), ("k.json", b'{"a": {"b": [1, 2]}}'), ("l.txt", b"other"), ("l.json", b"{}")]
TYPE = {"__module__": "megatron.energon", "__class__": "TextSample"}
LOADER = """
import math
def sample_loader(sample):
    return {"text": sample["txt"] + sample["__key__"] + str(math.floor(1.5))}
def part_filter(part):
    return part == "txt"
def changes_key(sample):
    return {"__key__": "new", "text": ",".join(sorted(sample))}
"""


@pytest.fixture
def folder(tmp_path: Path, prepare: Any) -> Path:
    folder: Path = prepare(tmp_path / "set", {"a.tar": MEMBERS})
    return folder


def define(folder: Path, **definition: Any) -> Path:
    (folder / ".nv-meta" / "dataset.yaml").write_text(yaml.dump(definition, sort_keys=False))
    return folder


def test_field_map_makes_samples(folder: Path) -> None:
    define(folder, sample_type=TYPE, field_map={"text": "json[a][b][1],txt"}, subflavors={"x": 1})
    dataset = WebDataset(folder, subflavors={"y": 2})
    assert dataset.sample_type is TextSample
    assert dataset.subflavors == {"x": 1, "y": 2}
    assert type(dataset[0]) is TextSample
    assert [sample.text for sample in dataset] == [2, "other"]
    assert dataset[0].__subflavors__ == {"x": 1, "y": 2}
    assert dataset[0].__sources__[0].file_names == ("k.txt", "k.json")
    assert TextSample.derive_from(dataset[1], text="new").__key__ == "l"
    with pytest.raises(ValueError, match="selects its fields"):
        WebDataset(folder, part_filter=["txt"])
    assert WebDataset(folder, raw=True)[0]["txt"] == b"text"


def test_a_sample_without_a_mapped_field_is_an_error(folder: Path) -> None:
    define(folder, sample_type=TYPE, field_map={"text": "json[a][b]"})
    dataset = WebDataset(folder)
    assert dataset[0].text == [1, 2]
    with pytest.raises(FieldAccessError, match=r"field 'text': json\[a\]\[b\]: json has no 'a'") as raised:
        dataset[1]
    assert raised.value.__notes__ == [f"in sample 'l' of {folder / 'a.tar'}"]


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({}, "no sample_type"),
        ({"sample_type": {"__class__": 1}}, "no sample_type"),
        ({"sample_type": {**TYPE, "__class__": "Text"}}, "the sample type 'Text'"),
        ({"sample_type": TYPE}, "both or neither of field_map and sample_loader"),
        ({"sample_type": TYPE, "field_map": {"text": "txt"}, "sample_loader": "a.py"}, "both or neither"),
        ({"sample_type": TYPE, "field_map": {"text": "txt"}, "part_filter": ["txt"]}, "a part_filter and a field_map"),
        ({"sample_type": TYPE, "field_map": ["txt"]}, "a field_map that is a list"),
        ({"sample_type": TYPE, "field_map": {"text": "txt", "txt": "txt"}}, "the field 'txt' in field_map"),
        ({"sample_type": TYPE, "field_map": {}}, "no field 'text' in field_map"),
        ({"sample_type": TYPE, "field_map": {"text": 5}}, "text is 5"),
        ({"sample_type": TYPE, "sample_loader": "a.py"}, "a sample_loader without a part_filter"),
        ({"sample_type": TYPE, "field_map": {"text": "txt"}, "subset": {}}, "the key 'subset'"),
        ({"sample_type": TYPE, "field_map": {"text": "txt"}, "subflavors": [1]}, "subflavors that are a list"),
        ({"__module__": "megatron.energon", "__class__": "CrudeWebdataset", "field_map": {}}, "neither for a Crude"),
        ({"__module__": "megatron.energon", "__class__": "CrudeWebdataset", "decoder": 5}, "a decoder of another"),
        (
            {"__class__": "CrudeWebdataset", "decoder": {"__class__": "SampleDecoder", "guess_content": True}},
            "guess_content",
        ),
    ],
)
def test_invalid_definitions_are_rejected(folder: Path, definition: Any, text: str) -> None:
    define(folder, **definition)
    with pytest.raises(FormatError, match=text) as raised:
        WebDataset(folder, trust_code=True)
    assert raised.value.path == str(folder / ".nv-meta" / "dataset.yaml")
    assert len(WebDataset(folder, raw=True)) == 2


def test_older_files_name_a_dataset_class(folder: Path) -> None:
    define(folder, __module__="megatron.energon", __class__="TextWebdataset", field_map={"text": "txt"})
    assert WebDataset(folder)[0].text == "text"


def test_functions_run_only_if_they_are_trusted(folder: Path) -> None:
    loader = folder / ".nv-meta" / "sample_loader.py"
    loader.write_text(LOADER)
    functions = {"sample_loader": "sample_loader.py:sample_loader", "part_filter": "sample_loader.py:part_filter"}
    define(folder, sample_type=TYPE, **functions)
    with pytest.raises(UntrustedCode, match=r"sample_loader\.py:sample_loader, which would run"):
        WebDataset(folder)
    dataset = pickle.loads(pickle.dumps(WebDataset(folder, trust_code=True)))
    assert [sample.text for sample in dataset] == ["textk1", "otherl1"]
    assert dataset[0].__sources__[0].file_names == ("k.txt",)
    define(folder, sample_type=TYPE, sample_loader="sample_loader.py:changes_key", part_filter=["json"])
    sample = WebDataset(folder, trust_code=True)[0]
    assert (sample.__key__, sample.text) == ("new", "__key__,__restore_key__,__shard__,__sources__,json")
    define(folder, sample_type=TYPE, sample_loader="sample_loader.py", part_filter="sample_loader.py")
    assert WebDataset(folder, trust_code=True)[0].text == "textk1"
    define(folder, sample_type=TYPE, sample_loader="sample_loader.py:none", part_filter=["txt"])
    with pytest.raises(FormatError, match="no function none"):
        WebDataset(folder, trust_code=True)
    define(folder, __class__="CrudeWebdataset", part_filter="sample_loader.py:part_filter")
    with pytest.raises(UntrustedCode):
        WebDataset(folder)
    assert "json" not in WebDataset(folder, trust_code=True)[0]


def test_sample_types_of_other_modules_are_imported_only_if_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_samples.py").write_text(
        "from dataclasses import dataclass\nfrom fastpack import Sample\n"
        "@dataclass(slots=True, kw_only=True)\nclass Own(Sample):\n    text: str\n    n: int = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kind = {"__module__": "own_samples", "__class__": "Own"}
    define(folder, sample_type=kind, field_map={"text": "txt"})
    with pytest.raises(UntrustedCode, match="the sample type Own of the module own_samples"):
        WebDataset(folder)
    sample = WebDataset(folder, trust_code=True)[0]
    assert (type(sample).__name__, sample.text, sample.n) == ("Own", "text", 3)
    define(folder, sample_type={"__module__": "json", "__class__": "JSONDecoder"}, field_map={})
    with pytest.raises(FormatError, match="a dataclass derived from Sample"):
        WebDataset(folder, trust_code=True)


def test_decoder_options_of_the_definition(folder: Path, prepare: Any, golden: Path) -> None:
    crude = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
    define(folder, **crude, decoder=None)
    assert WebDataset(folder)[0]["json"] == b'{"a": {"b": [1, 2]}}'
    assert WebDataset(folder, image_decode="pil")[0]["json"] == {"a": {"b": [1, 2]}}
    options = {"__module__": "megatron.energon", "__class__": "SampleDecoder", "image_decode": "l8"}
    picture = WebDataset(golden / "energon" / "split", raw=True)[0]["jpg"]
    prepare(folder, {"b.tar": [("k.jpg", picture)]}, definition={**crude, "decoder": options})
    assert WebDataset(folder)[0]["jpg"].shape == (4, 12)
    assert WebDataset(folder, image_decode="rgba8")[0]["jpg"].shape == (4, 12, 4)


def cook_text(sample: Any) -> TextSample:
    return TextSample(**basic_sample_keys(sample), text=sample["txt"].upper())


def test_cookers_make_samples_of_crude_ones(folder: Path) -> None:
    other = Cooker(str, has_subflavors={"kind": "other"})
    cookers = [other, Cooker(cook_text, has_subflavors={"kind": "text"}), cook_text]
    dataset = WebDataset(folder, cookers=cookers, subflavors={"kind": "text", "n": 1})
    assert [sample.text for sample in dataset] == ["TEXT", "OTHER"]
    assert dataset[0].__subflavors__ == {"kind": "text", "n": 1}
    assert dataset[0].__sources__[0].index == 0
    assert pickle.loads(pickle.dumps(WebDataset(folder, cookers=[cook_text])))[1].text == "OTHER"
    with pytest.raises(ValueError, match="no cooker matches the subflavors"):
        WebDataset(folder, cookers=[other])
    with pytest.raises(TypeError, match="is not a cooker"):
        WebDataset(folder, cookers=[5])
    with pytest.raises(ValueError, match="crude datasets"):
        WebDataset(folder, raw=True, cookers=[cook_text])
    cook_with_store = functools.partial(cook_text)
    cook_with_store.__cooker_need_primary__ = True  # type: ignore[attr-defined]  # as Energon's decorator marks it
    with pytest.raises(ValueError, match="file stores"):
        WebDataset(folder, cookers=[Cooker(cook_with_store)])
    source = fastpack.SourceInfo(dataset_path=folder, index="x", shard_name="s", file_names=())
    crude = WebDataset(folder)[0]
    assert basic_sample_keys(crude, (source,))["__sources__"] == (*crude["__sources__"], source)


def test_dataset_config_with_another_name(folder: Path) -> None:
    define(folder, sample_type=TYPE, field_map={"text": "txt"})
    (folder / ".nv-meta" / "dataset.yaml").rename(folder / ".nv-meta" / "own.yaml")
    assert type(WebDataset(folder)[0]) is fastpack.CrudeSample
    assert type(WebDataset(folder, dataset_config="own.yaml")[0]) is TextSample
    with pytest.raises(FileNotFoundError):
        WebDataset(folder, dataset_config="nothing.yaml")
