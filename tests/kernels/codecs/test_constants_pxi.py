"""The generated .pxi files contain the constants of the Python modules."""

from __future__ import annotations

import pytest

from fastpack.kernels.codecs import constants_pxi


@pytest.mark.parametrize("file", constants_pxi.FILES)
def test_generated_files_are_up_to_date(file: str) -> None:
    path = constants_pxi.FOLDER / file
    if not path.exists():
        pytest.skip("only a checkout has the sources of the Cython modules")
    assert path.read_text() == constants_pxi.generate(file), (
        "run `python -m fastpack.kernels.codecs.constants_pxi` and rebuild"
    )
