"""Batches on a device: with a stand-in for the device, and the device itself where there is one."""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fastpack  # noqa: E402
import fastpack.torch  # noqa: E402
from fastpack.loading.buffers import aligned_memory  # noqa: E402

NAMES = ("input_ids", "labels", "cu_seqlens", "max_seqlen")


class StandIn:
    """A device that copies as late as it may: when the training step or a thread waits for it."""

    def __init__(self) -> None:
        self.queued: list[Callable[[], object]] = []
        self.n_done, self.lock = 0, threading.Lock()
        self.kept: list[Any] = []
        self.waits: list[str] = []  # the threads that waited on the host
        self.blocks: list[Any] = []  # pinned memory
        self.staged: list[Any] = []  # tensors in other memory, which a device copies at once

    def pinned_memory(self, n_bytes: int) -> Any:
        self.blocks.append(aligned_memory(n_bytes))
        return self.blocks[-1]

    def copy(self, tensor: Any, dtype: Any) -> Any:
        target = torch.full_like(tensor, -1, dtype=dtype or tensor.dtype)
        tensor = tensor if tensor.is_contiguous() else tensor.contiguous()
        if tensor.data_ptr() not in {block.ctypes.data for block in self.blocks}:
            self.staged.append(tensor)
        # As a device does, read at the address: that does not keep the memory from being reused.
        where, shape = tensor.data_ptr(), tuple(tensor.shape)
        code, n_bytes = tensor.numpy().dtype, tensor.nbytes

        def copy_now() -> None:
            source = np.frombuffer((ctypes.c_uint8 * n_bytes).from_address(where), code).reshape(shape)
            target.copy_(torch.from_numpy(source.copy()))

        self.queued.append(copy_now)
        return target

    def contiguous(self, view: Any) -> Any:
        if view.is_contiguous():
            return view
        target = torch.full(view.shape, -1, dtype=view.dtype)
        self.queued.append(lambda: target.copy_(view))
        return target

    def record(self) -> Any:
        return StandInEvent(self, len(self.queued))

    def let_wait(self, event: Any) -> None:
        self.run(event.position)

    def keep(self, tensor: Any) -> None:
        self.kept.append(tensor)

    def run(self, position: int) -> None:
        with self.lock:  # both threads may let the device go on
            while self.n_done < position:
                self.queued[self.n_done]()
                self.n_done += 1


class StandInEvent:
    def __init__(self, stream: StandIn, position: int) -> None:
        self.stream, self.position = stream, position

    def query(self) -> bool:
        return self.stream.n_done >= self.position

    def synchronize(self) -> None:
        self.stream.waits.append(threading.current_thread().name)
        self.stream.run(self.position)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stream = StandIn()
    monkeypatch.setattr("fastpack.torch.loader.open_stream", lambda _: stream)
    return stream


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    tokens = np.random.default_rng(1).integers(0, 60_000, 33 * 64).astype(np.uint16)
    tokens[::9] = 0
    np.save(tmp_path / "a.npy", tokens)
    return fastpack.torch.MemoryMappedDataset(tmp_path, 33, pack_sequences=True, eos_token_id=0)


def loader(dataset: Any, **options: Any) -> Any:
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=5)
    return fastpack.torch.StatefulDataLoader(dataset, 4, sampler, **options)


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for batch, other in zip(found, expected, strict=True):
        assert list(batch) == list(other)
        for name, value in batch.items():
            assert torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]


@pytest.mark.parametrize("prefetch", [0, 1, 2, 6])
@pytest.mark.parametrize("options", [{}, {"outputs": NAMES}, {"context_parallel": (1, 2)}, {"dtype": "int32"}])
def test_batches_are_those_of_the_host(dataset: Any, stand_in: StandIn, prefetch: int, options: Any) -> None:
    expected = [*loader(dataset, **options), *loader(dataset, **options)][:16]
    found = []
    for batch in loader(dataset, device="cuda", prefetch=prefetch, **options):
        found.append({name: value.clone() if hasattr(value, "clone") else value for name, value in batch.items()})
        assert stand_in.kept[-1] is [value for value in batch.values() if isinstance(value, torch.Tensor)][-1]
    assert_equal(found, expected)
    assert "MainThread" not in stand_in.waits or prefetch == 0
    assert len(stand_in.blocks) <= 4 * (prefetch + 8)  # pinned memory is reused


def test_copies_are_queued_ahead(dataset: Any, stand_in: StandIn) -> None:
    batches = iter(loader(dataset, device="cuda", prefetch=2, outputs=("labels",)))
    next(batches)
    batches._producers[0].pause(None)  # the thread ends when it has produced what it may
    assert stand_in.n_done == 1
    assert len(stand_in.queued) >= 2


def test_the_thread_waits_when_the_device_lags(dataset: Any, stand_in: StandIn) -> None:
    batches = iter(loader(dataset, device="cuda", prefetch=10))
    next(batches)
    for _ in range(200):
        if len(stand_in.waits) >= 3:
            break
        threading.Event().wait(0.01)
    assert set(stand_in.waits) == {"fastpack-loader"}
    batches.close()


def test_widened_on_the_device(dataset: Any, stand_in: StandIn) -> None:
    batch = next(iter(loader(dataset, device="cuda", widen=True, outputs=NAMES)))
    expected = next(iter(loader(dataset, outputs=NAMES)))
    assert_equal([batch], [expected])
    assert batch["labels"].dtype == torch.int64
    assert batch["cu_seqlens"].dtype == torch.int32
    assert sum(block.nbytes for block in stand_in.blocks[:2]) == 2 * 4 * 32 * 4  # int32 on the wire
    with pytest.raises(ValueError, match="widen=True converts on a device"):
        loader(dataset, widen=True)


def test_state_and_pickle(dataset: Any, stand_in: StandIn) -> None:
    expected = list(loader(dataset))
    first = loader(dataset, device="cuda")
    for _, _batch in zip(range(5), first, strict=False):
        pass
    state = first.state_dict()
    first.close()
    again = pickle.loads(pickle.dumps(loader(dataset, device="cuda")))
    again.load_state_dict(state)
    assert_equal(list(again), expected[5:])


def test_collated_samples(stand_in: StandIn) -> None:
    samples = [{"x": np.arange(3) + k, "name": str(k)} for k in range(8)]
    batches = list(fastpack.torch.StatefulDataLoader(samples, 4, range(8), device="cuda"))
    assert batches[1]["x"][3].tolist() == [7, 8, 9]
    assert batches[1]["name"] == ["4", "5", "6", "7"]
    collate = fastpack.torch.GPT2LLMCollateFn("x", "y")
    ids = [{"x": np.arange(3) + k} for k in range(8)]
    batch = next(iter(fastpack.torch.StatefulDataLoader(ids, 4, range(8), collate_fn=collate, device="cuda")))
    assert isinstance(batch, fastpack.torch.DatasetBatch)
    assert batch.targets["y"][2].tolist() == [3, 4]
    assert len(stand_in.kept) == 2 + 2


@pytest.mark.parametrize("options", [{}, {"context_parallel": (1, 2)}, {"prefetch": 0, "widen": True}])
def test_excluded_documents(tmp_path: Path, stand_in: StandIn, options: Any) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", token_size_in_bytes=2) as writer:
        for number in range(300):
            writer.append([*range(10 * number + 1, 10 * number + 8), 0])
    (tmp_path / "bad.txt").write_text(f"{tmp_path / 'a.pbin'}:7\n")
    dataset = fastpack.torch.PackedMemMapDatasetContinuous(tmp_path / "a.pbin", "x", 33, True, eos_token_id=0)
    batches = loader(dataset, device="cuda", outputs=("input_ids", "labels"), **options)
    batches.exclude(documents=tmp_path / "bad.txt")
    n_excluded, n_labels = 0, 0
    for batch in batches:
        n_excluded += int(((batch["labels"] > 70) & (batch["labels"] < 80)).sum())
        n_labels += int((batch["labels"] > 0).sum())
    assert n_excluded == 0
    assert n_labels > 400


def test_shapes_only_stay_on_the_host(dataset: Any, stand_in: StandIn) -> None:
    batch = next(iter(loader(dataset, device="cuda", shapes_only=True)))
    assert batch["labels"].shape == (4, 32)
    assert not stand_in.queued


def test_devices_that_do_not_exist_are_refused(dataset: Any) -> None:
    assert next(iter(loader(dataset, device="cpu")))["labels"].device.type == "cpu"
    n_devices = torch.cuda.device_count()
    with pytest.raises(ValueError, match=rf"device='cuda:{n_devices}', but torch .* finds {n_devices} CUDA devices"):
        loader(dataset, device=f"cuda:{n_devices}")
    with pytest.raises(ValueError, match="device='mps': choose 'cuda', 'cuda:N' or 'cpu'"):
        loader(dataset, device="mps")
    if not n_devices:
        with pytest.raises(ValueError, match=r"device='cuda', but .* finds 0 CUDA devices: omit device="):
            loader(dataset, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("widen", [False, True])
def test_a_cuda_device(dataset: Any, widen: bool) -> None:
    found = list(loader(dataset, device="cuda", widen=widen, outputs=NAMES))
    assert found[0]["labels"].device.type == "cuda"
    on_host = [{n: v.cpu() if isinstance(v, torch.Tensor) else v for n, v in batch.items()} for batch in found]
    assert_equal(on_host, list(loader(dataset, outputs=NAMES)))


def test_the_measuring_script_runs() -> None:
    script = Path(__file__).parents[1] / "asv_benchmarks" / "gpu.py"
    sizes = ["--steps", "2", "--rows", "2", "--length", "16", "--workers", "0", "--step-ms", "0.01"]
    done = subprocess.run(
        [sys.executable, script, "--device", "cpu", *sizes], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| fastpack, widened |") == 2


@pytest.mark.parametrize("widen", [False, True])
def test_one_array_is_copied_and_cut_on_the_device(tmp_path: Path, stand_in: StandIn, widen: bool) -> None:
    np.save(tmp_path / "plain.npy", np.arange(33 * 64, dtype=np.uint16))
    plain = fastpack.torch.MemoryMappedDataset(tmp_path, 33)
    expected = [*loader(plain, share_memory=False)]
    found = []
    for batch in loader(plain, device="cuda", widen=widen):
        assert batch["labels"].is_contiguous()
        found.append({name: tensor.clone() for name, tensor in batch.items()})
    assert_equal(found, expected)
    assert {block.nbytes for block in stand_in.blocks} == {4 * 33 * (4 if widen else 8)}
    assert not stand_in.staged
