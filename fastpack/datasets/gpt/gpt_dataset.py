"""`GPTDataset`: Megatron's training samples, in Megatron's order, of token files of any format."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Indices, RowDataset
from fastpack.datasets.file_spans import NumberedFiles, RowSpans
from fastpack.datasets.gpt.blend_building import BlendedSamples, BuildOptions, build_splits
from fastpack.datasets.gpt.blends import SURPLUS, BlendLike
from fastpack.datasets.gpt.gpt_rows import GPTRows
from fastpack.datasets.gpt.row_filling import NO_PAD, MaskRules, RowFiller, document_bounds
from fastpack.datasets.gpt.sample_order import SampleRules
from fastpack.datasets.gpt.splits import SPLITS, Split
from fastpack.datasets.outputs import Arrays
from fastpack.datasets.row_format import OutputOptions
from fastpack.datasets.window_groups import RowNumbers
from fastpack.display import facts
from fastpack.errors import DataWarning
from fastpack.item_numbers import item_numbers, position_of
from fastpack.tokens.token_file import TokenFile

Splits: TypeAlias = "tuple[GPTDataset | None, GPTDataset | None, GPTDataset | None]"


class GPTDataset(NumberedFiles, RowDataset):
    """The samples of Megatron's GPTDataset, or BlendedDataset of several, without its index files.

    `build` makes the datasets of the train, valid and test splits. A sample is a dict of tokens and labels (int64 [L]),
    loss_mask (float32 [L]) and position_ids (int64 [L]), equal to those of megatron-core; samples of a blend also have
    dataset_id, the number of their file. With inter_document_masking they have cu_seqlens (int32 [L + 1]: bounds of
    documents, then L) and max_seqlen.

    `batch` and `fill` take the outputs tokens, labels, loss_mask, position_ids (by default these four), cu_seqlens and
    max_seqlen, for [B, L] arrays; cu_seqlens is that of the batch as one sequence, and follows from position_ids. So
    with inter_document_masking it contains the bounds of documents, with reset_position_ids the places after EOD tokens
    (where Megatron's reset_attention_mask separates tokens), and otherwise the bounds of rows.

    loss_mask is also 0 where the loss mask of a file says that the label does not count (see `pack_conversations`).

    Parameters
    ----------
    samples, masks
        What `build` makes of its arguments.

    Notes
    -----
    Document order and sample order come from one stream of NumPy's legacy generator, and blends from Megatron's greedy
    rule; both are computed when the first sample is read (10 million documents: under a second), in every process by
    itself: nothing is written, no rank waits for another. A dataset takes 12.5 bytes a document, 4.5 more for each
    further epoch, and 4 bytes a sample of its files; a packed file takes 25 bytes a document while its index is read,
    and documents out of order 8 more. It pickles without these indices.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/tokens.npy", np.array([1, 2, 3, 0, 4, 5, 0, 6, 7, 8, 9, 0], np.uint16))
    >>> _ = fastpack.convert(f"{folder.name}/tokens.npy", f"{folder.name}/corpus", format="megatron", eos_token_id=0)
    >>> train, valid, test = fastpack.GPTDataset.build(
    ...     f"{folder.name}/corpus", sequence_length=4, random_seed=1234, num_samples=(5, 0, 0), split="1,0,0"
    ... )
    >>> len(train), valid, test
    (5, None, None)
    >>> train[0]["tokens"], train[0]["labels"]
    (array([6, 7, 8, 9]), array([7, 8, 9, 0]))
    >>> train.batch([0, 1])["loss_mask"].shape
    (2, 4)
    >>> folder.cleanup()
    """

    _subject = "_name"
    _not_pickled: ClassVar[tuple[str, ...]] = ("_file_masks",)
    _shown = facts(samples="_total", split="split", files=lambda self: self.n_files, closed="_closed")

    def __init__(self, samples: BlendedSamples, masks: MaskRules) -> None:
        """Use `build`."""
        self._samples = samples
        self._masks = replace(masks, reads_tokens=masks.reads_tokens or samples.has_signed_tokens)
        self.split = samples.split
        self.n_files = len(samples.orders)
        self._total = samples.n_samples
        self._length = samples.orders[0].rules.sequence_length
        self._name = samples.orders[0].source.path if self.n_files == 1 else None
        self._recorded = samples.recorded
        self._format = GPTRows(self._length)
        self._attach()

    def _attach(self) -> None:
        self._file_masks = self._samples.masks()

    @classmethod
    def build(
        cls,
        blend: BlendLike | None,
        sequence_length: int,
        random_seed: int,
        num_samples: Sequence[int | None],
        split: Split | None = "969,30,1",
        *,
        blend_per_split: Sequence[BlendLike | None] | None = None,
        add_extra_token_to_sequence: bool = True,
        drop_last_partial_validation_sequence: bool = True,
        eod_token_id: int | None = None,
        pad_token_id: int | None = None,
        inter_document_masking: bool = False,
        reset_position_ids: bool = False,
        eod_mask_loss: bool = False,
        mid_level_dataset_surplus: float = SURPLUS,
        compat: Literal["megatron"] | None = None,
        mix_tokenizers: bool = False,
    ) -> Splits:
        """Return the datasets of the train, valid and test splits (as megatron-core's BlendedMegatronDatasetBuilder).

        Parameters
        ----------
        blend
            A token file of any format with document boundaries (for Megatron's, the path without .bin and .idx), a list
            of such files, or [weight, file, weight, file, ...]. Without weights, the samples of all files are blended
            in proportion to their numbers.
        sequence_length
            The tokens of a sample, L.
        random_seed
            From 0 to 2^32 - 1.
        num_samples
            The samples of each split, at least; documents are repeated for as many epochs as that takes. None: one
            epoch, or for a list of files, all samples of one epoch of each.
        split
            The weights of the splits, such as "969,30,1"; or three shares of the documents, (0, 0.5) or None. The same
            shares are taken of each file.
        blend_per_split
            Three blends, one per split (or None), each of which takes whole files; `blend` must then be None, and
            `split` is not used.
        add_extra_token_to_sequence
            Whether samples are drawn with one more token, so that the last label is a token of the text.
        drop_last_partial_validation_sequence
            Whether the valid split leaves out its last, incomplete sample; otherwise it is padded.
        eod_token_id
            The token that ends documents. Needed by reset_position_ids and eod_mask_loss, and for formats that do not
            store document boundaries.
        pad_token_id
            Positions whose label is this token have no loss, and the token and label are replaced by 0. By default, and
            if it is eod_token_id (with a DataWarning), it is -1: only what is padded.
        inter_document_masking
            Whether position_ids restart with each document, and samples have cu_seqlens and max_seqlen.
        reset_position_ids
            Whether position_ids restart after each EOD token.
        eod_mask_loss
            Whether the loss at EOD tokens is 0.
        mid_level_dataset_surplus
            The share of samples that each file of a weighted blend provides beyond its part of the blend.
        compat
            "megatron" repeats an error of megatron-core: with drop_last_partial_validation_sequence=False, it computes
            the number of samples of a file in single precision, which is wrong above 2^24 tokens. By default the number
            is right, and a DataWarning says where they differ.
        mix_tokenizers
            Blend files whose recorded tokenizers differ (see `TokenizerFingerprint`). By default they are refused.

        Returns
        -------
        tuple
            Three datasets; None for a split without a share, or without a blend.

        Raises
        ------
        FileNotFoundError, FormatError
            If a file does not exist or is damaged.
        ValueError
            If an argument is out of range, the recorded tokenizers of the files differ, the documents of a split have
            no tokens although samples are requested, a file has fewer samples than the blend takes, or more than 2^32.

        Warns
        -----
        DataWarning
            If compat="megatron" would give another number of samples; if pad_token_id is eod_token_id; or if Megatron's
            index files next to a token file are older than it, which Megatron would use nevertheless.
        """
        given = {name: value for name, value in locals().items() if name != "cls"}
        if compat not in (None, "megatron"):
            raise ValueError(f"compat={compat!r}: 'megatron' or None is needed")
        if (reset_position_ids or eod_mask_loss) and eod_token_id is None:
            raise ValueError("reset_position_ids and eod_mask_loss need eod_token_id")
        if sequence_length < 1:
            raise ValueError(f"sequence_length is {sequence_length}, at least 1 is needed")
        if not 0 <= random_seed < 1 << 32:
            raise ValueError(f"random_seed is {random_seed}, a number from 0 to 2^32 - 1 is needed")
        pad = NO_PAD if pad_token_id is None else pad_token_id
        if pad_token_id is not None and pad_token_id == eod_token_id:
            text = f"pad_token_id is eod_token_id, {pad}: EOD tokens keep their loss, as if there were no padding token"
            warnings.warn(text, DataWarning, stacklevel=2)
            pad = NO_PAD
        extra = int(add_extra_token_to_sequence)
        options = BuildOptions(
            SampleRules(sequence_length, extra, random_seed, compat == "megatron"),
            tuple(num_samples),
            split,
            eod_token_id,
            drop_last_partial_validation_sequence,
            mid_level_dataset_surplus,
            mix_tokenizers,
        )
        masks = MaskRules(
            extra,
            pad,
            -1 if eod_token_id is None else eod_token_id,
            inter_document_masking,
            reset_position_ids and not inter_document_masking,
            eod_mask_loss,
            reads_tokens=pad != NO_PAD or reset_position_ids or eod_mask_loss,
        )
        train, valid, test = [
            None if samples is None else cls._split_of(samples, masks, given)
            for samples in build_splits(blend, blend_per_split, options)
        ]
        return train, valid, test

    @classmethod
    def _split_of(cls, samples: BlendedSamples, masks: MaskRules, build: Mapping[str, Any]) -> GPTDataset:
        dataset = cls(samples, masks)
        dataset._arguments = ((samples.split, build), {})  # of `_described`
        return dataset

    @classmethod
    def _described(cls, name: str, build: Mapping[str, Any]) -> GPTDataset | None:
        """Return a split of what `build` makes of its arguments."""
        return cls.build(**build)[SPLITS.index(name)]

    @property
    def _row_format(self) -> GPTRows:
        return self._format

    def __getitem__(self, index: int | None) -> dict[str, Any]:
        """Return a sample; negative indices count from the end, and None gives sample 0 without a loss (as Megatron).

        Raises IndexError if the index is out of range.
        """
        self._check_open()
        number = position_of(0 if index is None else index, self._total)
        out = self._format.allocate(1, OutputOptions(None, None, None), np.empty)
        parts, files, dataset = self._samples.parts(np.array([number]))
        RowFiller(parts, files, None, self._masks, out).fill(self._samples.reader, self._file_masks)
        sample: dict[str, Any] = {name: array[0] for name, array in out.items()}
        if index is None:
            sample["loss_mask"][:] = 0
        if dataset is not None:
            sample = {"dataset_id": np.int16(dataset[0]), **sample}
        if self._masks.by_document:
            bounds = np.full(self._length + 1, self._length, np.int32)
            found = document_bounds(parts, 0, self._length, self._masks.extra)
            if len(found) > len(bounds):  # more empty documents than Megatron has room for
                found = sorted(set(found))
            bounds[: len(found)] = found
            sample.update(cu_seqlens=bounds, max_seqlen=np.diff(bounds).max())
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples as `Rows`, or with outputs that a row of a batch does not have, sample by sample."""
        alone = self._masks.by_document or self._samples.blend is not None
        return [self[index] for index in indices] if alone else super().__getitems__(indices)

    def _fill_rows(self, index: npt.NDArray[np.int64], arrays: Arrays, rows: RowNumbers | None) -> None:
        parts, files, _ = self._samples.parts(self._positions(index))
        RowFiller(parts, files, rows, self._masks, arrays).fill(self._samples.reader, self._file_masks)

    def _positions(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return sample numbers from 0 on; raise IndexError."""
        if not len(index) or (index.min() >= 0 and index.max() < self._total):
            return index
        outside = (index < -self._total) | (index >= self._total)
        if outside.any():
            raise IndexError(f"Index {index[outside.argmax()]} out of range for {self._total} samples")
        return np.where(index < 0, index + self._total, index)

    def will_need(self, indices: Indices) -> None:
        """Hint the OS to read these samples from the disk, for batches that are needed soon.

        Parameters
        ----------
        indices
            Sample numbers, as for `batch`.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        self._check_open()
        parts, files, _ = self._samples.parts(self._positions(item_numbers(indices)))
        self._samples.reader.will_need(files, parts.starts, parts.lengths)

    def row_spans(self, indices: Indices) -> RowSpans:
        """Return where the tokens of samples lie in the token files, without reading them.

        Parameters
        ----------
        indices
            Sample numbers, as for `batch`.

        Returns
        -------
        RowSpans
            One run of tokens for each part of a document (of a sequence, in Megatron's files); padding has none. The
            extra token of a sample is a label only.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        parts, files, _ = self._samples.parts(self._positions(item_numbers(indices)))
        none = np.zeros_like(files)
        ends = parts.starts + parts.lengths
        spans = RowSpans(parts.samples, parts.columns, none, files, parts.starts, ends, none - 1)
        spans = spans.chosen(parts.lengths > 0)
        return spans.chosen(np.argsort(spans.rows, kind="stable"))

    def _token_files(self) -> Sequence[str]:
        return [file.path for file in self._samples.sources]  # of all splits

    def _open_file(self, number: int) -> TokenFile:
        return self._samples.sources[number].open()

    def _identity(self) -> bytes:
        return repr([source.state() for source in self._samples.sources]).encode()

    def check_unchanged(self) -> None:
        """Raise FormatError if a file of tokens has changed since construction."""
        self._samples.reader.check_unchanged()

    def close(self) -> None:
        """Release the mappings; closing twice is allowed. Batches that were returned stay valid."""
        super().close()
        self._samples.reader.close()
