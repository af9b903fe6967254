"""The dataset of media, with tensors."""

from __future__ import annotations

from typing import Any

from fastpack.torch.tensors import from_arrays
from fastpack.webdataset.dataset import WebDataset as _WebDataset
from fastpack.webdataset.decoding import Decoder


class _TensorDecoder(Decoder):
    tensors = True

    def image(self, data: bytes) -> Any:
        value = super().image(data)
        return from_arrays(value) if self.image_decode.startswith("torch") else value


class WebDataset(_WebDataset):
    """`fastpack.WebDataset` with images as tensors for the image modes named torch..., the default one included.

    An AVDecoder returns tensors as well. All other fields are the same as without torch: a .npy field is an array
    (as in Energon).

    Examples
    --------
    >>> import io, tarfile, tempfile, fastpack.torch
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (8, 4)).save(file, "png")
    >>> folder = tempfile.mkdtemp()
    >>> with tarfile.open(f"{folder}/0.tar", "w") as tar:
    ...     member = tarfile.TarInfo("sample.png")
    ...     member.size = len(file.getvalue())
    ...     tar.addfile(member, io.BytesIO(file.getvalue()))
    >>> _ = fastpack.prepare(folder, split_ratio=(1, 0, 0))
    >>> with fastpack.torch.WebDataset(folder) as dataset:
    ...     dataset[0]["png"].shape
    torch.Size([3, 4, 8])
    """

    _decoder_type = _TensorDecoder
