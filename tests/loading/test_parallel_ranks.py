"""The place of a process in a divided model, and ranks that need only the shapes of batches."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fastpack
from fastpack import ParallelRanks


class Mesh(NamedTuple):
    """What is read of a torch DeviceMesh."""

    mesh_dim_names: tuple[str, ...] | None
    shape: tuple[int, ...]
    coordinate: list[int] | None

    def get_coordinate(self) -> list[int] | None:
        return self.coordinate


def test_sizes_and_a_mesh_in_the_order_of_torchtitan_agree() -> None:
    names, shape = ("pp", "dp_replicate", "dp_shard", "cp", "tp"), (2, 2, 3, 2, 2)
    members = defaultdict(list)
    for rank in range(48):
        place = ParallelRanks.from_sizes(rank, 48, tp=2, cp=2, pp=2)
        coordinate = [int(one) for one in np.unravel_index(rank, shape)]
        assert ParallelRanks.from_mesh(Mesh(names, shape, coordinate)) == place
        assert place.world_size == 48
        members[place.data[0], place.context[0]].append(rank)
    assert {len(ranks) for ranks in members.values()} == {4}  # tensor x pipeline: they get identical batches
    assert sorted(members) == [(data, context) for data in range(6) for context in range(2)]
    assert members[0, 0] == [0, 1, 24, 25]


def test_ranks_as_megatron_numbers_them() -> None:
    place = ParallelRanks.from_sizes(13, 16, tp=2, cp=2, pp=2)
    assert place == ParallelRanks(data=(1, 2), context=(0, 2), tensor=(1, 2), pipeline=(1, 2))
    assert place.sampler_options == {"num_replicas": 2, "rank": 1}
    assert [ParallelRanks.from_sizes(rank, 4, pp=4).needs_tokens for rank in range(4)] == [True, False, False, True]
    assert ParallelRanks.from_sizes(0, 1) == ParallelRanks()


def test_other_names_of_dimensions() -> None:
    mesh = Mesh(("stage", "dp"), (2, 4), [1, 3])
    assert ParallelRanks.from_mesh(mesh, {"stage": "pipeline"}) == ParallelRanks(data=(3, 4), pipeline=(1, 2))
    with pytest.raises(ValueError, match=r"the mesh has a dimension 'stage': .* pass names=\{'stage': kind\}"):
        ParallelRanks.from_mesh(mesh)
    with pytest.raises(ValueError, match="name the dimensions of the mesh"):
        ParallelRanks.from_mesh(Mesh(None, (2,), [0]))
    with pytest.raises(ValueError, match="this process is not in the mesh"):
        ParallelRanks.from_mesh(Mesh(("dp",), (2,), None))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0, "world_size": 6, "tp": 4}, r"6 ranks cannot be divided by tp=4 \* cp=1 \* pp=1"),
        ({"rank": 0, "world_size": 6, "cp": 0}, "6 ranks cannot be divided"),
        ({"rank": 6, "world_size": 6}, "rank is 6, of 6 ranks"),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParallelRanks.from_sizes(**arguments)


def test_a_torch_mesh() -> None:
    pytest.importorskip("torch")
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("pp", "dp_shard", "tp"))
        assert ParallelRanks.from_mesh(mesh) == ParallelRanks()
        assert ParallelRanks.from_mesh(mesh["dp_shard"]) == ParallelRanks()
    finally:
        distributed.destroy_process_group()


def mixture(folder: Path) -> Any:
    np.save(folder / "a.npy", np.arange(1, 33 * 12 + 1, dtype=np.uint16))
    dataset = fastpack.MemoryMappedDataset(folder, 33, pack_sequences=True, eos_token_id=0, io="pread")
    return fastpack.MixtureDataset([dataset, dataset], ["a", "b"])


@pytest.mark.parametrize("options", [{}, {"context_parallel": (1, 4)}, {"dtype": "int32", "prefetch": 0}])
def test_ranks_without_tokens_stay_in_step(tmp_path: Path, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = mixture(tmp_path)

    def loader(**more: Any) -> Any:
        sampler = fastpack.MixtureSampler(dataset.cumulative_sizes, [3, 1], 2, 1, seed=1)
        return fastpack.StatefulDataLoader(dataset, 2, sampler, **options, **more)

    whole, shapes = loader(), loader(shapes_only=True)
    expected = list(whole)
    files: Any = dataset.datasets[0]._windows.files
    monkeypatch.setattr(files, "read", lambda *_: pytest.fail("a token was read"))
    monkeypatch.setattr(files, "will_need", lambda *_: pytest.fail("a token was hinted"))
    found = list(shapes)
    assert shapes.state_dict() == whole.state_dict()
    assert len(found) == len(expected)
    for batch, full in zip(found, expected, strict=True):
        assert {n: (a.shape, a.dtype) for n, a in batch.items()} == {n: (a.shape, a.dtype) for n, a in full.items()}
        np.testing.assert_array_equal(batch["dataset_idx"], full["dataset_idx"])
        assert batch["input_ids"].strides == (0, 0)
    with pytest.raises(ValueError, match="cannot be put together from samples"):
        list(shapes.batch_sampler)


def test_shapes_that_depend_on_tokens_are_refused(tmp_path: Path) -> None:
    dataset = mixture(tmp_path)
    share = {"context_parallel": (0, 2)}
    for options, names in (
        ({"outputs": ("labels", "cu_seqlens")}, "cu_seqlens"),
        ({"outputs": ("labels", "max_seqlen_global"), **share}, "max_seqlen_global"),
        ({"outputs": ("labels",), "cp_layout": "documents", **share}, "labels"),
    ):
        with pytest.raises(ValueError, match=f"shapes_only: {names} depend on the tokens"):
            fastpack.StatefulDataLoader(dataset, 2, [0, 1], shapes_only=True, **options)
    with pytest.raises(ValueError, match="shapes_only is for rows of tokens: a list has none"):
        fastpack.StatefulDataLoader([1, 2], 2, [0, 1], shapes_only=True)
