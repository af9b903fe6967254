"""KempnerForge's `[data]` table: defaults, overrides, and invalid values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import fastpack
from fastpack import TrainingPhase
from fastpack.loading.config import DatasetSource

FULL = """
[model]
dim = 512

[train]
seq_len = 2048
seed = 7

[data]
file_pattern = "tokenized_*.bin"
tokenizer_path = "gpt2"
num_workers = 0
pack_sequences = true
mix_temperature = 2
datasets = [{path = "a", weight = 3}, {hf_name = "b/c", hf_config = "d", name = "web"}]
phases = [{start_step = 0, dataset_weights = {a = 1, web = 0}}, {start_step = 100, lr_scale = 0.5}]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str = "", *cli_args: str) -> Any:
    return fastpack.load_config(write(folder, text), cli_args)


def test_defaults(tmp_path: Path) -> None:
    config = load(tmp_path)
    values = dataclasses.asdict(config)
    assert values.pop("train") == {"seed": 42, "data_seed": None}
    assert values == {
        "dataset_path": "",
        "file_pattern": "*.npy",
        "tokenizer_path": "",
        "num_workers": 4,
        "pin_memory": True,
        "prefetch_factor": 2,
        "hf_dataset_name": None,
        "hf_dataset_config": None,
        "hf_dataset_split": "train",
        "hf_dataset_text_field": "text",
        "hf_dataset_image_field": "image",
        "hf_dataset_prompt_field": "",
        "hf_image_size": 224,
        "hf_streaming": False,
        "pack_sequences": False,
        "datasets": [],
        "mix_temperature": 1.0,
        "phases": [],
        "anneal_start_step": 0,
        "anneal_weights": {},
    }
    assert (config.source, config.schedule(), config.sampler_seed, config.data) == ("", [], 42, config)


def test_a_complete_file(tmp_path: Path) -> None:
    config = load(tmp_path, FULL)
    assert config.datasets == [DatasetSource("a", weight=3.0), DatasetSource("", "b/c", "d", name="web")]
    assert [source.label for source in config.datasets] == ["a", "web"]
    assert DatasetSource(hf_name="b/c").label == "b/c"
    assert config.phases == [TrainingPhase(0, {"a": 1.0, "web": 0.0}), TrainingPhase(100, {}, 0.5)]
    assert config.schedule() == config.phases
    assert type(config.mix_temperature) is float
    assert (config.num_workers, config.pack_sequences, config.sampler_seed) == (0, True, 7)


def test_annealing_is_one_phase(tmp_path: Path) -> None:
    text = "[data]\nanneal_start_step = 900\nanneal_weights = {good = 0.8, rest = 0.2}"
    assert load(tmp_path, text).schedule() == [TrainingPhase(900, {"good": 0.8, "rest": 0.2}, 1.0)]
    assert load(tmp_path, "[data]\nanneal_start_step = 900").schedule() == []


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("--data.num_workers=0", "num_workers", 0),
        ("--data.num-workers=0", "num_workers", 0),
        ("--data.pack_sequences", "pack_sequences", True),
        ("--data.pin_memory=False", "pin_memory", False),
        ("--data.pin_memory=false", "pin_memory", False),
        ("--data.mix_temperature=3", "mix_temperature", 3.0),
        ("--data.dataset_path=/data/a=b", "dataset_path", "/data/a=b"),
        ("--data.dataset_path=123", "dataset_path", "123"),
        ("--data.dataset_path=true", "dataset_path", "true"),
        ("--data.dataset_path='quoted'", "dataset_path", "quoted"),
        ("--data.dataset_path=", "dataset_path", ""),
        ("--data.hf_dataset_name=None", "hf_dataset_name", None),
        ("--data.hf_dataset_name=a/b", "hf_dataset_name", "a/b"),
        ("--data.anneal_weights={'a': 1}", "anneal_weights", {"a": 1.0}),
        ("--data.datasets=[{'path': 'x', 'weight': 2}]", "datasets", [DatasetSource("x", weight=2.0)]),
    ],
)
def test_overrides(tmp_path: Path, argument: str, name: str, value: Any) -> None:
    config = load(tmp_path, '[data]\nhf_dataset_name = "z"\nnum_workers = 9', argument)
    assert getattr(config, name) == value
    assert type(getattr(config, name)) is type(value)


def test_the_last_override_wins_and_other_tables_are_ignored(tmp_path: Path) -> None:
    words = (
        "--data.num_workers=1",
        "--model.dim=8",
        "--train.max_steps=5",
        "--train.data_seed=3",
        "--data.num_workers=2",
    )
    config = load(tmp_path, FULL, *words)
    assert (config.num_workers, config.sampler_seed, config.train.seed) == (2, 3, 7)


def test_unknown_keys(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Unknown config keys in DataConfig") as refused:
        load(tmp_path, "[data]\nworkers = 3\nbatch = 1")
    valid = sorted(one.name for one in dataclasses.fields(type(load(tmp_path))) if one.name != "train")
    assert str(refused.value) == f"Unknown config keys in DataConfig: ['batch', 'workers']. Valid keys: {valid}"
    with pytest.raises(ValueError, match=r"Unknown config keys in DataConfig: \['train'\]"):
        load(tmp_path, "", "--data.train=1")
    with pytest.raises(
        ValueError, match=r"in TrainingPhase: \['step'\]. Valid keys: \['dataset_weights', 'lr_scale', 's"
    ):
        load(tmp_path, "[data]\nphases = [{step = 3}]")
    with pytest.raises(ValueError, match=r"Unknown config keys in DatasetSource: \['url'\]"):
        load(tmp_path, "[data]\ndatasets = [{url = 'x'}]")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("num_workers = -1", "num_workers must be non-negative, got -1"),
        ("prefetch_factor = 0", "prefetch_factor must be >= 1, got 0"),
        ("hf_image_size = 0", "hf_image_size must be >= 1, got 0"),
        ("mix_temperature = 0", "mix_temperature must be positive, got 0.0"),
        ("mix_temperature = -1.5", "mix_temperature must be positive"),
        ("anneal_start_step = -1", "anneal_start_step must be non-negative"),
        ("anneal_weights = {a = -0.1}", r"anneal_weights\['a'\] must be non-negative, got -0.1"),
        ("datasets = [{path = 'a', weight = 0}]", "Dataset weight must be positive, got 0.0"),
        ("datasets = [{weight = 1}]", "DatasetSource '' must have either path or hf_name"),
        ("datasets = ['a']", r"\[datasets\] is 'a', a table is needed"),
        ("phases = [{}]", "TrainingPhase needs start_step"),
        ("phases = [{start_step = -1}]", "TrainingPhase.start_step must be non-negative"),
        ("phases = [{start_step = 1, lr_scale = 0}]", "TrainingPhase.lr_scale must be positive, got 0.0"),
        (
            "phases = [{start_step = 1, dataset_weights = {a = -1}}]",
            r"TrainingPhase.dataset_weights\['a'\] must be non-negative",
        ),
        (
            "phases = [{start_step = 5}, {start_step = 5}]",
            r"data.phases start_steps must be strictly monotonically increasing, got \[5, 5\]",
        ),
        (
            "phases = [{start_step = 5}]\nanneal_start_step = 3",
            "Cannot use both data.phases and data.anneal_start_step — use phases for multi-phase scheduling",
        ),
        (
            "phases = [{start_step = 5}]\nanneal_weights = {a = 1}",
            "Cannot use both data.phases and data.anneal_start_step — use phases for multi-phase scheduling",
        ),
        ("num_workers = 'four'", "num_workers is 'four', int is needed"),
        ("num_workers = true", "num_workers is True, int is needed"),
        ("pin_memory = 1", "pin_memory is 1, bool is needed"),
        ("dataset_path = 3", "dataset_path is 3, str is needed"),
        ("datasets = 3", "datasets is 3, list is needed"),
    ],
)
def test_invalid_values_are_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        load(tmp_path, f"[data]\n{text}")


def test_precedence_of_sources(tmp_path: Path) -> None:
    keys = {
        "hf_dataset_name": "'a'",
        "dataset_path": "'b'",
        "datasets": "[{path = 'c'}]",
    }
    text = "[data]"
    for name, value in keys.items():  # each one precedes those already present
        text += f"\n{name} = {value}"
        assert load(tmp_path, text).source == name


def test_invalid_files_and_arguments(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Config file not found: .*missing\.toml"):
        fastpack.load_config(tmp_path / "missing.toml")
    with pytest.raises(ValueError, match="invalid TOML"):
        load(tmp_path, "[data")
    with pytest.raises(ValueError, match=r"\[data\] is 3, a table is needed"):
        load(tmp_path, "data = 3")
    for word in ("data.num_workers=1", "--num_workers=1", "--data.=1", "-x", "--.a=1", ""):
        with pytest.raises(ValueError, match=r"is not an override: write --data\.key=value"):
            load(tmp_path, "", word)


def test_a_loader_accepts_the_configuration(tmp_path: Path) -> None:
    config = load(tmp_path, "[data]\nprefetch_factor = 5\nnum_workers = 8")
    assert fastpack.StatefulDataLoader(range(10), 2, config=config).prefetch == 5
