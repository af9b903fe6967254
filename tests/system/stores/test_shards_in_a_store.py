"""`convert` to numbered shards in a store, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fastpack
from fastpack.io import names_in

DOCUMENTS = [[5, 6, 7, 0], [0], [9, 9, 0], [*range(1, 29), 0], [12, 0], [8, 0]]


def names(url: str) -> list[str]:
    try:
        return sorted(names_in(url))
    except FileNotFoundError:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["megatron", "datatrove", "npy"])
def test_shards_in_a_store_and_back(store: Any, name: str, tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many([token for one in DOCUMENTS for token in one], [len(one) for one in DOCUMENTS])
    source, target = tmp_path / "a.pbin", f"{store.url}/{name}/corpus{'.npy' if name == 'npy' else ''}"
    folder = f"{store.url}/{name}"

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fastpack.convert(source, target, format=name, shard_tokens=8, progress=stop)
    assert names(folder) == []
    first = fastpack.convert(source, target, format=name, shard_tokens=4)
    with pytest.raises(FileExistsError):
        fastpack.convert(source, target, format=name, shard_tokens=8)
    result = fastpack.convert(source, target, format=name, shard_tokens=8, if_exists="overwrite")
    assert 1 < len(result.outputs) < len(first.outputs)
    assert len(names(folder)) == len(result.outputs) * {"megatron": 2, "datatrove": 3, "npy": 1}[name]
    for shards in (result.outputs, folder, f"{folder}/*"):
        back = fastpack.convert(shards, tmp_path / "b.pbin", eos_token_id=0, if_exists="overwrite")
        assert Path(back.output).read_bytes() == source.read_bytes()
