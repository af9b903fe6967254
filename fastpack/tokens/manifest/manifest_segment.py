"""Segments of shards that were located by a manifest, and are compared with it before they are used."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from fastpack.errors import FormatError
from fastpack.io import Reader, as_path, open_reader
from fastpack.tokens.flat.shards import scan_shards
from fastpack.tokens.llmc import LlmcTokens
from fastpack.tokens.pbin.packed_file import open_packed_segment
from fastpack.tokens.token_segment import TokenSegment


@dataclass(frozen=True, slots=True)
class ManifestSegment(TokenSegment):
    """A segment described by the manifest at `manifest`; the file itself has not been scanned."""

    manifest: str = ""

    def open_reader(self) -> Reader:
        """Open the file for reads by position. Raises FormatError if the file is not what the manifest says."""
        return open_reader(self.path, self._scan().version)

    def check_unchanged(self) -> None:
        """Raise FormatError if the file is not what the manifest says."""
        self._scan()

    def trimmed(self, keep: int = 0) -> TokenSegment:
        """Return this segment without its trailing zero tokens, except the first `keep` of them."""
        if self.plain and self.length:
            self.check_unchanged()
        return TokenSegment.trimmed(self, keep)  # super() does not work in a dataclass with slots

    def _scan(self) -> TokenSegment:
        """Return the segment according to the file itself; raise FormatError if the manifest differs."""
        hint = f"as {self.manifest} says (restore the shard, or update the manifest with `fastpack manifest`)"
        size, time_ns, _ = self.stamp or (None, None, None)
        try:
            found = self._scan_file()
        except FileNotFoundError:
            message = f"No such file, but {self.manifest} names it"
            raise FileNotFoundError(errno.ENOENT, message, self.path) from None
        except FormatError as error:
            raise FormatError(self.path, error.offset, error.found, f"{error.expected}, and {hint}") from None
        except ValueError:  # an empty file
            raise FormatError(self.path, 0, "a file of 0 bytes", f"{size}, {hint}") from None
        assert found.stamp is not None
        n_bytes = found.stamp[0]
        if size is not None and n_bytes != size:
            raise FormatError(self.path, min(n_bytes, size), f"a file of {n_bytes} bytes", f"{size}, {hint}")
        if time_ns is not None and found.stamp[1] != time_ns:
            raise FormatError(self.path, 0, "a file that was modified since", f"the file {hint}")
        expected, layout = (self.dtype, self.offset, self.plain), (found.dtype, found.offset, found.plain)
        if expected != layout or found.length < self.length:
            what = f"a header that describes {found.length} rows of {found.dtype} from byte {found.offset}"
            raise FormatError(self.path, 0, what, f"{self.length} of {self.dtype} from byte {self.offset}, {hint}")
        return found

    def _scan_file(self) -> TokenSegment:
        if self.path.endswith(".pbin"):
            return open_packed_segment(self.path)[0]
        if self.offset and self.path.endswith(".bin"):
            return LlmcTokens(as_path(self.path)).segments()[0]
        raw = self.offset == 0 and self.plain
        return scan_shards([as_path(self.path)], self.dtype if raw else None, raw=raw)[0]
