"""Writing headerless `.bin` files of tokens (tatm, nanoGPT)."""

from __future__ import annotations

from fastpack.io import AtomicFile
from fastpack.tokens.token_writer import BufferedTokenWriter


class BinWriter(BufferedTokenWriter):
    """Writes tokens without a header. Document lengths are not stored: EOS tokens end documents."""

    header_bytes = 0

    def _finish(self, output: AtomicFile) -> None:
        del output  # nothing precedes or follows the tokens
