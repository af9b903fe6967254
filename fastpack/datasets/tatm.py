"""`TatmMemmapDataset`: tatm's dataset over its token files, chunks of `context_length` tokens with document ids."""

from __future__ import annotations

import glob
import math
import os
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import Dataset, Indices
from fastpack.datasets.file_spans import NumberedFiles, RowSpans, row_spans
from fastpack.datasets.recorded_tokenizers import tokenizer_of_shards
from fastpack.datasets.shard_masks import warn_of_masks
from fastpack.datasets.tatm_items import SplitType, TatmMemmapDatasetItem, TokenOutputFormat, chosen_option, to_torch
from fastpack.datasets.window_groups import Tokens
from fastpack.datasets.windows import Windows
from fastpack.display import facts
from fastpack.errors import DataWarning
from fastpack.io import PathLike, as_path, is_remote
from fastpack.item_numbers import item_number, item_numbers
from fastpack.tokens.flat.shard_warnings import find_warnings
from fastpack.tokens.flat.shards import scan_shards
from fastpack.tokens.flat.tatm_metadata import TatmDataMetadata
from fastpack.tokens.formats import open_tokens
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import SegmentPaths

MOST_DOCUMENTS = 1 << 16  # in an item, because document_ids are uint16


class TatmMemmapDataset(NumberedFiles, Dataset):
    """Read chunks of tokens with document ids and, optionally, the attention mask they imply (as tatm).

    Parameters
    ----------
    file_prefix
        The start of the files' paths.
    context_length
        The tokens of an item.
    dtype
        The dtype of the tokens on disk.
    chunked
        Whether items are consecutive chunks, the last one of a file padded with zeros; otherwise every token starts an
        item, and items at the end of a file are shorter.
    file_suffix
        The end of the files' paths, after a dot.
    eos_token
        The token that ends a document.
    token_output_format
        "numpy" (tokens in the files' dtype, document_ids uint16, mask bool) or "torch" (all int64 tensors; needs the
        extra `torch`).
    vocab_size
        Kept as an attribute only.
    create_doc_ids
        Whether items have document_ids: the number of EOS tokens before a token, from 0 in every item.
    create_doc_mask
        Whether items have document_mask [context_length, context_length]: true where a token may attend to another.
    val_split_size
        The number of items at the end that form the validation split, or their ratio if it is below 1.
    split
        "train", "validation", or None for all items. An index beyond the training split returns validation items.
    trim_zero_tail
        Drop the zeros at the end of each file, which tatm keeps.

    Raises
    ------
    ValueError
        If arguments contradict each other.
    IndexError
        If an item is out of range; on len() if no file matches.

    Warns
    -----
    DataWarning
        If no file matches, or the data are probably misread.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> np.array([5, 6, 1, 7, 8], np.uint16).tofile(f"{folder}/tokens_0.bin")
    >>> dataset = fastpack.tatm.TatmMemmapDataset(f"{folder}/tokens", context_length=4, token_output_format="numpy")
    >>> len(dataset)
    2
    >>> dataset[0].token_ids, dataset[0].document_ids
    (array([5, 6, 1, 7], dtype=uint16), array([0, 0, 0, 1], dtype=uint16))
    """

    _subject = "file_prefix"
    _shown = facts(samples=len, context_length="context_length", files="_shards", split="split", closed="_closed")
    _not_pickled = ("_windows",)

    def __init__(
        self,
        file_prefix: str,
        context_length: int,
        dtype: str = "uint16",
        chunked: bool = True,
        file_suffix: str = "bin",
        eos_token: int = 1,
        token_output_format: TokenOutputFormat | str = TokenOutputFormat.TORCH,
        vocab_size: int | None = None,
        create_doc_ids: bool = True,
        create_doc_mask: bool = False,
        val_split_size: float | None = None,
        split: SplitType | str | None = None,
        *,
        trim_zero_tail: bool = False,
    ) -> None:
        self.token_output_format = chosen_option(TokenOutputFormat, token_output_format, "token output format")
        self.file_prefix, self.file_suffix = file_prefix, file_suffix
        self.context_length, self.dtype, self.chunked = context_length, dtype, chunked
        self.eos_token, self.vocab_size = eos_token, vocab_size
        self.create_doc_ids, self.create_doc_mask = create_doc_ids, create_doc_mask
        if create_doc_mask and not create_doc_ids:
            raise ValueError("Document mask creation requires create_doc_ids to be True.")
        self._find_files(trim_zero_tail)
        self.split: SplitType | None = None
        self._split_index: int | None = None
        if val_split_size is not None:
            self.create_split(val_split_size)
        self.set_split(split)

    def _find_files(self, trim: bool) -> None:
        paths = _matching(self.file_prefix, self.file_suffix)
        self._shards = scan_shards([as_path(path) for path in paths], np.dtype(self.dtype), raw=True)
        self._recorded = tokenizer_of_shards(paths, True, self.eos_token)
        moved = f"no file is called {self.file_prefix}*.{self.file_suffix}: was the folder moved?"
        found = find_warnings(self._shards, dtype_is_given=True, tail_is_trimmed=trim, raw=True) if paths else [moved]
        for text in found:
            warnings.warn(text, DataWarning, stacklevel=3)
        warn_of_masks(self._shards, "tatm's items have no labels; those of MemoryMappedDataset show it")
        if trim:
            self._shards = [shard.trimmed(keep=int(self.eos_token == 0)) for shard in self._shards]
        self._step = self.context_length if self.chunked else 1
        self._bounds = [0, *accumulate(-(-shard.length // self._step) for shard in self._shards)]
        self._attach()

    def _attach(self) -> None:
        self._windows = Windows([s.open for s in self._shards], np.diff(self._bounds), self.context_length, 1)

    def create_split(self, split_size: float = 0.1) -> None:
        """Make the last items the validation split.

        Parameters
        ----------
        split_size
            The number of items, or, below 1, their share of all items, rounded up to whole items.
        """
        if split_size < 1:
            split_size = math.ceil(self._n_items() * split_size)
        self._split_index = int(self._n_items() - split_size)

    def set_split(self, split: SplitType | str | None = None) -> None:
        """Restrict the dataset to "train" or "validation"; None selects all items.

        Parameters
        ----------
        split
            The split, or None.

        Raises
        ------
        ValueError
            For another name, or if there is no split.
        """
        chosen = None if split is None else chosen_option(SplitType, split, "split type")
        if chosen is not None and self._split_index is None:
            raise ValueError(
                "No current index to split the dataset has been set. Please call create_split prior to setting a split."
            )
        self.split = chosen

    def _n_items(self) -> int:
        if not self._shards:
            raise IndexError(f"no file is called {self.file_prefix}*.{self.file_suffix}")
        return self._bounds[-1]

    def __len__(self) -> int:
        n_items = self._n_items()
        if self.split is None or self._split_index is None:
            return n_items
        return self._split_index if self.split is SplitType.TRAIN else n_items - self._split_index

    def __getitem__(self, index: int) -> TatmMemmapDatasetItem:
        return TatmMemmapDatasetItem(**{name: array[0] for name, array in self.batch([item_number(index)]).items()})

    def batch(self, indices: Indices) -> dict[str, Any]:
        """Return several items, stacked.

        Parameters
        ----------
        indices
            Numbers of items in the current split; negative ones count from the end.

        Returns
        -------
        dict
            token_ids [B, L]; document_ids [B, L] and document_mask (bool [B, L, L]) if they are created.

        Raises
        ------
        IndexError
            If an index is out of range.
        ValueError
            If the items differ in length, which chunks never do.
        """
        self._check_open()
        windows = [self._window(index) for index in item_numbers(indices).tolist()]
        lengths = {self.context_length} if self.chunked else {len(window) for window in windows}
        if len(lengths) > 1:
            raise ValueError(f"items of {sorted(lengths)} tokens do not form a batch")
        tokens = np.zeros((len(windows), *lengths), np.int64)
        for row, window in zip(tokens, windows, strict=True):
            row[: len(window)] = window
        outputs = {"token_ids": self._formatted(tokens, self._shards[0].dtype)}
        if self.create_doc_ids:
            doc_ids = self._document_ids(tokens)
            outputs["document_ids"] = self._formatted(doc_ids, np.dtype(np.uint16))
            if self.create_doc_mask:
                mask = (doc_ids[:, :, None] == doc_ids[:, None, :]) & np.tri(*lengths, dtype=np.bool_)
                outputs["document_mask"] = self._formatted(mask, mask.dtype)
        return outputs

    def _window(self, index: int) -> Tokens:
        """Return the tokens of an item, without padding."""
        return self._windows.window(*self._place(index))

    def _place(self, index: int) -> tuple[int, int]:
        """Return the file of an item, and its first token there."""
        index += len(self) if index < 0 else 0
        if index < 0:
            raise IndexError("Index out of bounds.")
        if self.split is SplitType.VALIDATION and self._split_index is not None:
            index += self._split_index
        if index >= self._bounds[-1]:
            raise IndexError("Index out of bounds.")
        number = bisect_right(self._bounds, index) - 1
        return number, (index - self._bounds[number]) * self._step

    def row_spans(self, indices: Indices) -> RowSpans:
        """Return where the tokens of items lie in the files; padding has no place.

        Parameters
        ----------
        indices
            Numbers of items in the current split; negative ones count from the end.

        Returns
        -------
        RowSpans
            The file and the token range of each item.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        places = np.array([self._place(index) for index in item_numbers(indices).tolist()], np.int64).reshape(-1, 2)
        files, starts = places.T
        lengths = np.array([shard.length for shard in self._shards], np.int64)
        return row_spans(files, starts, np.minimum(starts + self.context_length, lengths[files]))

    def _token_files(self) -> Sequence[str]:
        return SegmentPaths(self._shards)

    def _open_file(self, number: int) -> TokenFile:
        return open_tokens(self._shards[number].path, format="bin", dtype=self.dtype, eos_token_id=self.eos_token)

    def _identity(self) -> bytes:
        return repr((self._bounds, self._step, self.split, self._split_index)).encode()

    def _document_ids(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        doc_ids = np.empty_like(tokens)
        for row, out in zip(tokens, doc_ids, strict=True):
            kernels.doc_ids(row, self.eos_token, out)
        if tokens.shape[1] > MOST_DOCUMENTS and (last := int(doc_ids[:, -1].max())) >= MOST_DOCUMENTS:
            raise OverflowError(f"{last + 1} documents in one item: document_ids are uint16")
        return doc_ids

    def _formatted(self, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> Any:
        """Return the array in the output format: `dtype` for "numpy", an int64 tensor for "torch"."""
        if self.token_output_format is TokenOutputFormat.NP:
            return array.astype(dtype, copy=False)
        return to_torch(array.astype(np.int64, copy=False))

    def num_files(self) -> int:
        """Return the number of files.

        Returns
        -------
        int
            The number of files.
        """
        return len(self._shards)

    def num_tokens(self) -> int:
        """Return the number of tokens in all files.

        Returns
        -------
        int
            The number of tokens.
        """
        return sum(shard.length for shard in self._shards)

    def check_unchanged(self) -> None:
        """Raise FormatError if a file has changed since construction: size, modification time or inode."""
        for shard in self._shards:
            shard.check_unchanged()

    def close(self) -> None:
        """Release the mappings; closing twice is allowed."""
        super().close()
        self._windows.close()


def get_dataset(metadata: PathLike | TatmDataMetadata, *, relocate: bool = False, **kwargs: Any) -> TatmMemmapDataset:
    """Open the dataset that tatm's metadata describe.

    Parameters
    ----------
    metadata
        The metadata, their file, or a folder with that file.
    relocate
        Take the files from the folder of the metadata, or from their dataset_path, for folders that were moved: the
        file_prefix in the metadata is absolute.
    **kwargs
        Arguments of `TatmMemmapDataset`.

    Returns
    -------
    TatmMemmapDataset
        The dataset.

    Raises
    ------
    FileNotFoundError
        If the metadata do not exist.
    NotImplementedError
        If the data are not tokens.
    ValueError
        If the metadata are invalid.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> np.arange(8, dtype=np.uint16).tofile(f"{folder}/t_0.bin")
    >>> with open(f"{folder}/metadata.yaml", "w") as file:
    ...     _ = file.write(
    ...         "{name: n, dataset_path: p, description: d, date_downloaded: '', download_source: s, "
    ...         "data_content: text, "
    ...         f"tokenized_info: {{file_prefix: {folder}/t, dtype: uint16, tokenizer: t}}}}"
    ...     )
    >>> dataset = fastpack.get_dataset(folder, context_length=4, token_output_format="numpy")
    >>> dataset[1]["token_ids"]
    array([4, 5, 6, 7], dtype=uint16)
    """
    folder = None
    if not isinstance(metadata, TatmDataMetadata):
        path = as_path(metadata)
        if not path.exists():
            raise FileNotFoundError(f"Metadata file or directory not found at {path}")
        folder = path if path.is_dir() else path.parent
        metadata = TatmDataMetadata.from_directory(path) if path.is_dir() else TatmDataMetadata.from_file(path)
    info = metadata.tokenized_info
    if info is None:
        raise NotImplementedError("Metadata does not describe a model ready tatm dataset type.")
    prefix = info.file_prefix
    if relocate:
        prefix = os.path.join(metadata.dataset_path if folder is None else folder, os.path.basename(prefix))
    return TatmMemmapDataset(file_prefix=prefix, dtype=info.dtype, vocab_size=info.vocab_size, **kwargs)


def _matching(prefix: str, suffix: str) -> list[str]:
    if is_remote(prefix):
        folder, name = os.path.split(prefix)
        return sorted(os.fspath(path) for path in as_path(folder).glob(f"{name}*.{suffix}"))
    return sorted(glob.glob(f"{prefix}*.{suffix}"))
