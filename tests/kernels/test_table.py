"""The table of kernels, the selection of a backend, and the backend of each type of process."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastpack
from fastpack import kernels

FOLDER = Path(kernels.__file__).parent


def run_python(code: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "FASTPACK_KERNELS"} | environment
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def output_of(code: str, **environment: str) -> str:
    done = run_python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_kernel_has_every_implementation(backend: str) -> None:
    for kernel, modules in kernels.TABLE.items():
        assert set(modules) == set(kernels.BACKENDS)
        assert getattr(kernels, kernel).__module__ == f"fastpack.kernels.{modules[backend]}" or backend == "cython"
        assert kernel in kernels.__all__


def test_every_implementation_is_in_the_table() -> None:
    named = {module for modules in kernels.TABLE.values() for module in modules.values()}
    found = {
        ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        for suffix in ("np.py", "nb.py", "cy.pyi")
        for path in FOLDER.rglob(f"*_{suffix}")
    }
    assert named == found


def test_every_kernel_has_the_same_summary_on_every_backend(backend: str) -> None:
    for kernel, modules in kernels.TABLE.items():
        specification = importlib.import_module(f"fastpack.kernels.{modules['numpy']}")
        summary = (getattr(specification, kernel).__doc__ or "").split("\n")[0]
        assert summary.endswith((".", "]")), kernel
        assert summary in (getattr(kernels, kernel).__doc__ or ""), kernel


def test_cold_process_runs_cython_and_warm_switches_to_numba() -> None:
    pytest.importorskip("numba")
    code = "from fastpack import kernels; import sys; print(kernels.backend(), 'numba' in sys.modules, kernels.warm())"
    assert output_of(code) == "cython False numba"


def test_selecting_loads_all_kernels_and_calling_only_one() -> None:
    code = (
        "import sys; from fastpack import kernels; kernels.doc_ids; kernels.doc_ids\n"
        "names = (name.removeprefix('fastpack.kernels.') for name in sys.modules)\n"
        "print(*sorted(name for name in names if name.endswith(('_cy', '_np'))))"
    )
    assert output_of(code) == "documents_cy"
    for name in ("cython", "numpy"):
        loaded = " ".join(sorted({modules[name] for modules in kernels.TABLE.values()}))
        assert output_of(code, FASTPACK_KERNELS=name) == loaded
        assert output_of(f"from fastpack import kernels; kernels.use({name!r})\n{code}") == loaded


def test_warm_does_not_override_a_selection() -> None:
    code = "from fastpack import kernels; print(kernels.warm(), kernels.backend())"
    assert output_of(code, FASTPACK_KERNELS="numpy") == "numpy numpy"
    assert output_of("from fastpack import kernels; kernels.use('cython'); print(kernels.warm())") == "cython"


def test_an_unknown_backend_is_rejected() -> None:
    with pytest.raises(ValueError, match="numba, cython, numpy"):
        kernels.use("fortran")
    done = run_python("from fastpack import kernels; kernels.doc_ids", FASTPACK_KERNELS="fortran")
    assert done.returncode == 1
    assert "unknown kernel backend 'fortran'" in done.stderr


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_kernel'"):
        _ = kernels.no_such_kernel


HIDE_NUMBA = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "numba" or name.startswith("numba."):
            raise ModuleNotFoundError("No module named 'numba'", name="numba")
sys.meta_path.insert(0, Hidden())
"""


def test_without_numba_an_explicit_selection_fails_and_warm_does_not() -> None:
    assert output_of(HIDE_NUMBA + "from fastpack import kernels; print(kernels.warm())") == "cython"
    done = run_python(HIDE_NUMBA + "from fastpack import kernels; kernels.use('numba')")
    assert done.returncode == 1
    assert "ImportError: kernel backend 'numba' is not available" in done.stderr


@pytest.mark.parametrize("checkout", [True, False])
def test_a_missing_extension_is_an_error_without_fallback(checkout: bool, tmp_path: Path) -> None:
    """Run in a copy of fastpack without compiled kernels in the current folder."""
    shutil.copytree(Path(fastpack.__file__).parent, tmp_path / "fastpack", ignore=shutil.ignore_patterns("kernels"))
    folder = tmp_path / "kernels" if checkout else tmp_path / "fastpack" / "kernels"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.pyx", "__pycache__"))
    if checkout:
        (folder / "lines_cy.pyx").touch()
        (tmp_path / "fastpack" / "kernels").symlink_to("../kernels")
        remedy = (
            f"Python imported fastpack from the checkout {tmp_path}, where the kernels are not built for this Python: "
            "run `pip install -e .` there, or start Python in another folder to use an installed package\n"
        )
    else:
        remedy = "the compiled extension is missing: reinstall fastpack, or choose FASTPACK_KERNELS=numpy (slow)\n"
    done = run_python("from fastpack import kernels; kernels.doc_ids", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines(keepends=True)[-1].endswith(f"; {remedy}")
    by_numpy = run_python("from fastpack import kernels; kernels.use('numpy'); print(kernels.backend())", cwd=tmp_path)
    assert by_numpy.stdout == "numpy\n"


WORKER = """
import multiprocessing, sys
from fastpack import kernels

def report(queue):
    queue.put((kernels.backend(), "numba" in sys.modules))

if __name__ == "__main__":
    kernels.warm()
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    worker = context.Process(target=report, args=(queue,))
    worker.start()
    print(*queue.get(timeout=60))
    worker.join()
"""


@pytest.mark.parametrize(("method", "expected"), [("fork", "numba True"), ("spawn", "cython False")])
def test_forked_workers_use_numba_and_spawned_workers_cython(method: str, expected: str, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    env = {name: value for name, value in os.environ.items() if name != "FASTPACK_KERNELS"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), method]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


def test_kernels_run_without_a_writable_cache_folder(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    code = (
        "from fastpack.kernels import jit; import numba\n"
        "class Refusing:\n"
        "    def __call__(self, *a, cache=False, **k):\n"
        "        if cache: raise RuntimeError('cannot cache function')\n"
        "        return original(*a, **k)\n"
        "original = numba.njit; numba.njit = Refusing()\n"
        "print(jit.jit(lambda x: x + 1)(41))"
    )
    assert output_of(code, NUMBA_CACHE_DIR=str(locked)) == "42"


def test_kernels_is_not_a_top_level_package() -> None:
    done = run_python(f"import sys; sys.path.insert(0, {str(FOLDER.resolve().parent)!r}); import kernels")
    assert done.returncode == 1 or "site-packages" in str(FOLDER.resolve())
    if "site-packages" not in str(FOLDER.resolve()):
        assert "import it by that name" in done.stderr
    assert fastpack.kernels is kernels
