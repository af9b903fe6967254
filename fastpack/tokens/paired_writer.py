"""Writing a file of tokens together with side files, such as an index, that describe it."""

from __future__ import annotations

import contextlib
import os

from fastpack.io import AtomicFile, ExistencePolicy, PathLike, TargetExists, may_write, remove
from fastpack.tokens.token_writer import BufferedTokenWriter


class PairedTokenWriter(BufferedTokenWriter):
    """Base of writers of tokens with side files; `side_paths` names them, `_write_sides` writes their contents.

    A crash never leaves a side file with tokens that it does not describe: old side files are removed before the tokens
    get their name, and new ones get theirs last, in the order of `side_paths`.
    """

    header_bytes = 0

    def __init__(
        self,
        path: PathLike,
        token_size_in_bytes: int,
        *,
        if_exists: ExistencePolicy = "error",
        signed: bool = False,
    ) -> None:
        self._sides: list[AtomicFile] = []
        super().__init__(path, token_size_in_bytes, if_exists=if_exists, signed=signed)

    def side_paths(self, path: str) -> list[str]:
        """Return the paths of the side files of a file of tokens."""
        raise NotImplementedError

    def _write_sides(self, sides: list[AtomicFile]) -> None:
        raise NotImplementedError

    def _open(self, path: PathLike) -> AtomicFile:
        with contextlib.ExitStack() as stack:
            stack.callback(self._abort_sides)
            for side in self.side_paths(os.fspath(path)):
                if not may_write(side, self._policy):
                    raise TargetExists(f"{side} exists and is to be kept: nothing to write")
                self._sides.append(AtomicFile(side, policy=self._policy))
            output = super()._open(path)
            stack.pop_all()
        return output

    def _finish(self, output: AtomicFile) -> None:
        del output  # the side files contain what others write around the tokens
        self._write_sides(self._sides)

    def _commit(self, output: AtomicFile) -> None:
        for side in reversed(self._sides):
            remove(side.path)
        output.commit()
        for side in self._sides:
            side.commit()

    def abort(self) -> None:
        """Remove what was written and keep existing files of these names. Does nothing if the writer is closed."""
        super().abort()
        self._abort_sides()

    def _abort_sides(self) -> None:
        for side in self._sides:
            side.abort()
