"""Each write-related call of a command fails once: the old file remains, or the new file is complete."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastpack.io import AtomicFile


def failing(number: int, cut: bool = False) -> Callable[..., Any]:
    """Return a fault that raises OSError; with `cut`, it first writes half of the data."""

    def fault(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if cut and name in ("write", "pwrite"):
            short_write(name, real, arguments)
        raise OSError(number, os.strerror(number), *file_arguments(name, arguments))

    return fault


def file_arguments(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the file names that the real error contains."""
    return {"open": arguments[:1], "replace": (arguments[0], None, arguments[-1])}.get(name, ())


def short_write(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Write half of the bytes, as on a full disk or after an interrupt."""
    if name not in ("write", "pwrite"):
        return real(*arguments)
    fd, data, *offset = arguments
    return real(fd, bytes(data)[: max(1, len(data) // 2)], *offset)


def is_temporary(name: str) -> bool:
    return name.endswith((".partial", ".journal", "-journal"))


def temporary_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if is_temporary(path.name)]


def check_next_run(work: Any, what: str, *options: str) -> None:
    """Check that a run without faults then gives the expected files and no others."""
    code, error, _ = work.run(-1, None, *options)
    if code == 1 and "Pass --force" in error:  # the previous run had already replaced the file
        assert "--force" not in work.job.words
        code = 0
    assert (code, work.contents()) == (0, work.after), (what, error)


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_a_failing_disk(fault: str, work: Any) -> None:
    number = getattr(errno, fault)
    calls = work.run()[2].calls
    assert len(calls) > 3
    for at, name in enumerate(calls):
        work.reset()
        what = f"{fault} at call {at}: {name}"
        code, error, _ = work.run(at, failing(number, cut=True))
        now = work.contents()
        assert all(work.is_old_or_new(new, now) for new in work.job.new), what
        if name == "fallocate" and code == 0:  # only a hint on file systems that cannot do it
            assert fault == "EIO"
            continue
        assert code == 1, what
        assert os.strerror(number) in error, (what, error)
        assert error.count("\n") == 1, (what, error)
        assert any(os.path.basename(new) in error for new in work.job.new), (what, error)
        assert work.job.resumes or not temporary_files(work.folder), what
        assert {name for name in now if not is_temporary(name)} <= set(work.after), what
        check_next_run(work, what)


def test_a_short_write_is_continued(work: Any) -> None:
    calls = work.run()[2].calls
    for at, name in enumerate(calls):
        if name in ("write", "pwrite"):
            work.reset()
            assert work.run(at, short_write)[0] == 0
            assert work.contents() == work.after, f"call {at}: {name}"


KEPT = r"fastpack: stopped at \d+ %; run the same command with --resume to continue\n"


def interrupt_before(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    raise KeyboardInterrupt


def interrupt_after(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    result = real(*arguments)
    if name == "open":
        os.close(result)  # the caller never gets the descriptor
    raise KeyboardInterrupt


@pytest.mark.parametrize("fault", [interrupt_before, interrupt_after])
def test_an_interrupt(fault: Callable[..., Any], work: Any) -> None:
    calls = work.run()[2].calls
    for at, name in enumerate(calls):
        work.reset()
        what = f"call {at}: {name}"
        code, error, _ = work.run(at, fault)
        now = work.contents()
        assert code == 130, what
        assert all(work.is_old_or_new(new, now) for new in work.job.new), what
        kept = temporary_files(work.folder)
        assert work.job.keeps or not kept, what
        if error:
            assert re.fullmatch(KEPT, error), what
            assert kept, what
        options = ["--resume"] if error and at % 2 and "--resume" not in work.job.words else []
        check_next_run(work, what, *options)


def test_a_kill(work: Any, tmp_path: Path) -> None:
    """The state of the folder before, during and after each call is the state that a kill would leave."""
    states: list[Path] = []
    seen: list[dict[Path, bytes]] = [{}]

    def keep(name: str) -> None:
        now = {path: path.read_bytes() for path in work.folder.rglob("*") if path.is_file()}
        if now != seen[-1]:
            seen.append(now)
            states.append(tmp_path / f"{len(states)} {name}")
            shutil.copytree(work.folder, states[-1])

    def watch(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        keep(f"before {name}")
        if name in ("write", "pwrite"):
            done = short_write(name, real, arguments)
            keep(f"in {name}")
            return done
        return real(*arguments)

    class Always:
        def __eq__(self, other: object) -> bool:
            return True

    assert work.run(Always(), watch)[0] == 0
    assert len(states) > 5
    for state in states:
        work.reset(state)
        now = {name: value for name, value in work.contents().items() if not is_temporary(name)}
        assert set(now) <= set(work.after), state.name
        assert all(work.is_old_or_new(new, now) for new in work.job.new), state.name
        check_next_run(work, state.name)


def test_a_second_writer_fails(work: Any) -> None:
    """A command fails immediately, without changes, while another process writes the same file."""
    for new in work.job.new[:1]:
        with AtomicFile(work.folder / new) as other:
            other.write(b"the other's")
            code, error, _ = work.run()
            assert code == 1
            assert error == f"fastpack: error: another process is writing {work.folder / new}: wait for it, or end it\n"
        assert (work.folder / new).read_bytes() == b"the other's"


def test_a_file_that_appears_during_the_run_is_kept(work: Any) -> None:
    """Another run of the command finished first and reported success, so its file is kept, except with --force."""
    target = work.folder / work.job.new[0]

    def overtake(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        target.write_bytes(b"the other's")
        return real(*arguments)

    code, error, _ = work.run(0, overtake)
    if "--force" in work.job.words or work.job.name.startswith(("prepare", "write-checksums")):
        assert (code, work.contents()) == (0, work.after)
        return
    assert code == 1
    assert "Pass --force to" in error
    assert target.read_bytes() == b"the other's"
    assert not temporary_files(work.folder)
