"""Modalities' collators: golden batches of 0.5.0, a token-by-token reference, and all types of samples."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import GPT2LLMCollateFn, LossMaskingCollateFnWrapper
from fastpack.loading.loss_mask import mask_targets

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "modalities" / "collators.json").read_text())
BEGIN, END, IGNORE = GOLDEN["begin"], GOLDEN["end"], GOLDEN["ignore"]
TOKENS = {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"}


class Tokenizer:
    def get_token_id(self, token: str) -> int:
        return {"<b>": BEGIN, "<e>": END, "<other>": BEGIN}[token]


def wrapper(**options: Any) -> LossMaskingCollateFnWrapper:
    inner = GPT2LLMCollateFn("ids", "labels")
    return LossMaskingCollateFnWrapper(inner, ["labels"], IGNORE, TOKENS, Tokenizer(), **options)


def samples_of(case: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    return [{"ids": np.array(row, case["dtype"])} for row in case["samples"]]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=range(len(GOLDEN["cases"])))
def test_golden_under_compat(case: dict[str, Any]) -> None:
    collate = wrapper(compat="modalities-0.5")
    if "error" in case:
        with pytest.raises(ValueError, match="before begin mask token"):
            collate(samples_of(case))
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch = collate(samples_of(case))
    assert bool(caught) == case["warned"]
    assert batch.samples["ids"].tolist() == case["inputs"]
    assert batch.targets["labels"].tolist() == case["targets"]
    assert batch.targets["labels"].dtype == case["targets_dtype"]
    assert len(batch) == len(case["samples"])


def test_golden_batches_that_modalities_masks_correctly() -> None:
    """Without compat the result is the same, except where 0.5.0 raises or masks a batch because of other rows."""
    compared = 0
    for case in GOLDEN["cases"]:
        if "error" in case or case["warned"]:
            continue
        last = [len(row) > 2 and row[-1] == BEGIN and _is_open(row[1:-1]) for row in case["samples"]]
        if any(last):  # 0.5.0 does not see a span within a span at the last position
            with pytest.raises(ValueError, match=f"position {len(case['inputs'][0]) - 1}: the token 5 begins a span"):
                wrapper()(samples_of(case))
            continue
        batch = wrapper()(samples_of(case))
        compared += 1
        assert batch.targets["labels"].tolist() == case["targets"]
        assert batch.targets["labels"].dtype == case["targets_dtype"]
    assert compared > 50


def _is_open(row: list[int]) -> bool:
    return [token for token in row if token in (BEGIN, END)][-1:] == [BEGIN]


def walk(row: list[int]) -> list[int] | None:
    """Mask a row token by token; None if spans are nested."""
    markers = [token for token in row if token in (BEGIN, END)]
    inside, out = markers[:1] == [END], []
    for token in row:
        if token in (BEGIN, END):
            if inside == (token == BEGIN):
                return None
            inside = token == BEGIN
            out.append(IGNORE)
        else:
            out.append(token if inside else IGNORE)
    return out


targets = st.integers(1, 12).flatmap(
    lambda length: st.lists(
        st.lists(st.sampled_from([1, 2, 3, 4, BEGIN, END]), min_size=length, max_size=length), min_size=1, max_size=5
    )
)


@given(rows=targets, dtype=st.sampled_from(["uint8", "int8", "int32", "int64"]), strided=st.booleans())
def test_rows_are_masked_independently(rows: list[list[int]], dtype: str, strided: bool) -> None:
    array = np.array(rows, dtype)
    if strided:
        array = np.concatenate([array[:, :1], array], axis=1)[:, 1:]
    expected = [walk(row) for row in rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if None in expected:
            with pytest.raises(ValueError, match=f"row {expected.index(None)}, position"):
                mask_targets(array, BEGIN, END, IGNORE)
            return
        masked = mask_targets(array, BEGIN, END, IGNORE)
    assert masked.tolist() == expected
    assert masked.dtype == ("int64" if dtype == "uint8" else dtype)
    assert array.tolist() == rows


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1, 2, END, 3, BEGIN, 4], [1, 2, -100, -100, -100, 4]),  # the block starts and ends within a span
        ([1, 2, END, 3, 3, 3], [1, 2, -100, -100, -100, -100]),
        ([1, BEGIN, 3, 4, 4, 4], [-100, -100, 3, 4, 4, 4]),
        ([END, BEGIN, END, BEGIN, END, BEGIN], [-100] * 6),
    ],
)
def test_open_spans(row: list[int], expected: list[int]) -> None:
    assert mask_targets(np.array([row], np.uint8), BEGIN, END, IGNORE).tolist() == [expected]
    shifted = [np.array([9, *row], np.int32)] * 2
    batch = wrapper()([{"ids": one} for one in shifted])
    assert batch.targets["labels"].tolist() == [expected] * 2
    assert batch.targets["labels"].dtype == np.int32
    assert batch.samples["ids"].tolist() == [one[:-1].tolist() for one in shifted]


def test_errors_locate_nested_spans() -> None:
    rows = np.ones((3, 9), np.int64)
    rows[0, [1, 4]], rows[1, [2, 7]], rows[2, [3, 6]] = (BEGIN, END), BEGIN, END
    with pytest.raises(ValueError, match="row 1, position 7: the token 5 begins a span within the one that position 2"):
        mask_targets(rows, BEGIN, END, IGNORE)
    with pytest.raises(ValueError, match="row 0, position 6: the token 6 ends a span that position 3 has ended"):
        mask_targets(rows[2:], BEGIN, END, IGNORE)


def test_a_batch_without_markers_raises_a_warning() -> None:
    for options in ({}, {"compat": "modalities-0.5"}):
        with pytest.warns(fastpack.DataWarning, match="does not count towards the loss") as caught:
            batch = wrapper(**options)([{"ids": np.arange(10, 14)}])
        assert batch.targets["labels"].tolist() == [[-100] * 3]
        assert caught[0].filename == __file__


def test_targets_are_widened_for_the_ignore_index() -> None:
    row = np.array([[1, BEGIN, 2, END]])
    for dtype, ignore, expected in (("uint8", 255, "uint8"), ("uint8", -1, "int64"), ("int32", -(2**40), "int64")):
        masked = mask_targets(row.astype(dtype), BEGIN, END, ignore)
        assert masked.dtype == expected
        assert masked.tolist() == [[ignore, ignore, 2, ignore]]


def test_arguments(tmp_path: Path) -> None:
    inner = GPT2LLMCollateFn(sample_key="ids", target_key="labels")
    named = LossMaskingCollateFnWrapper(
        wrapped_collate_fn=inner,
        target_keys_to_mask=["labels"],
        loss_ignore_index=-7,
        mask_tokens=SimpleNamespace(**TOKENS),
        tokenizer=Tokenizer(),
    )
    assert (named.b_mask_token_id, named.e_mask_token_id) == (BEGIN, END)
    assert named([{"ids": np.array([0, BEGIN, 1, END])}]).targets["labels"].tolist() == [[-7, 1, -7]]
    with pytest.raises(ValueError, match="must be different"):
        LossMaskingCollateFnWrapper(
            inner, [], -100, {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<other>"}, Tokenizer()
        )
    with pytest.raises(ValueError, match="no e_include_to_loss_token"):
        LossMaskingCollateFnWrapper(inner, [], -100, {"b_include_to_loss_token": "<b>"}, Tokenizer())
    with pytest.raises(ValueError, match="compat"):
        wrapper(compat="0.4")
    with pytest.raises(KeyError, match="ids"):
        inner([{"labels": np.zeros(3)}])
    with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
        inner([{"ids": np.zeros(3)}, {"ids": np.zeros(4)}])


@pytest.fixture(params=[1, 2, 4])
def blocks(request: pytest.FixtureRequest, tmp_path: Path) -> fastpack.PackedMemMapDatasetContinuous:
    rng = np.random.default_rng(2)
    tokens = rng.integers(7, 200, 2000)
    tokens[::20], tokens[7::20] = BEGIN, END
    with fastpack.PackedWriter(tmp_path / "a.pbin", request.param) as writer:
        writer.append_many(tokens, [len(tokens)])
    return fastpack.PackedMemMapDatasetContinuous(tmp_path / "a.pbin", "ids", 33, True)


def test_whole_batches_are_not_copied(blocks: fastpack.PackedMemMapDatasetContinuous) -> None:
    rows = blocks.__getitems__([5, 1, 9])
    one, other = GPT2LLMCollateFn("ids", "labels")(rows), GPT2LLMCollateFn("ids", "labels")(list(rows))
    assert np.shares_memory(one.samples["ids"], rows.batch["ids"])
    assert np.shares_memory(one.samples["ids"], one.targets["labels"])
    for batch in (one, other):
        np.testing.assert_array_equal(batch.samples["ids"], rows.batch["ids"][:, :-1], strict=True)
        np.testing.assert_array_equal(batch.targets["labels"], rows.batch["ids"][:, 1:], strict=True)
    np.testing.assert_array_equal(wrapper()(rows).targets["labels"], wrapper()(list(rows)).targets["labels"])


def test_under_the_loader(blocks: fastpack.PackedMemMapDatasetContinuous) -> None:
    collate = pickle.loads(pickle.dumps(wrapper()))
    n_batches = 0
    for n_batches, batch in enumerate(
        fastpack.StatefulDataLoader(blocks, 4, range(len(blocks)), collate_fn=collate), 1
    ):
        first = 4 * (n_batches - 1)
        rows = np.stack([blocks[i]["ids"] for i in range(first, first + 4)])
        np.testing.assert_array_equal(batch.samples["ids"], rows[:, :-1])
        assert batch.targets["labels"].tolist() == [walk(row) for row in rows[:, 1:].tolist()]
    assert n_batches == len(blocks) // 4 == 15


@pytest.mark.parametrize("compat", [None, "modalities-0.5"])
def test_float_targets_are_masked_like_integers(compat: Any) -> None:
    """Modalities accepts floats, because torch.Tensor([...]) is float32, and keeps them."""
    rows = [[39, BEGIN, 35, 36, END, 37, 38], [39, 39, BEGIN, 35, END, 37, 38]]
    expected = wrapper(compat=compat)([{"ids": np.array(row)} for row in rows])
    for dtype in (np.float32, np.float64, np.float16):
        found = wrapper(compat=compat)([{"ids": np.array(row, dtype)} for row in rows])
        assert found.targets["labels"].dtype == dtype
        assert found.targets["labels"].tolist() == expected.targets["labels"].tolist()
    for dtype in (np.bool_, np.complex64):
        with pytest.raises(TypeError, match="integers are needed, or floats"):
            wrapper(compat=compat)([{"ids": np.array(row, dtype)} for row in rows])


def test_floats_are_widened_for_the_ignore_index() -> None:
    targets = np.array([[31, BEGIN, 35, END]], np.float16)
    masked = mask_targets(targets, BEGIN, END, -2049)
    assert masked.dtype == np.float64
    assert masked.tolist() == [[-2049, -2049, 35, -2049]]
