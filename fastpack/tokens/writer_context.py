"""Writers as context managers."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class CommitOnSuccess:
    """Mixin for writers: a with block that succeeds closes the writer, an error aborts it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def close(self) -> None:
        """Finish the output and give it its name. Does nothing if the writer is closed or aborted."""
        raise NotImplementedError

    def abort(self) -> None:
        """Remove what was written and keep an existing output. Does nothing if the writer is closed."""
        raise NotImplementedError
