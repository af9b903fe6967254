"""Build the Cython kernels and the man page; everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

from build_manpages.build_manpages import build_manpages, get_build_py_cmd
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

# build_manpages imports fastpack.cli.parser, and an isolated build has no cwd on sys.path.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

DEBUG = os.environ.get("FASTPACK_DEBUG") == "1"
# Cython's code for typed memoryviews, compiled once: in every module it was 90% of the compile time.
SHARED = "fastpack.kernels._memoryviews"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
}
SDIST_EXTRAS = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "recipe/recipe.yaml",
    ".ci/*",
    ".github/workflows/*.yml",
    "docs/*",
    "docs/_extensions/*.py",
    "docs/images/*.svg",
    "kernels/**/*.h",
    "kernels/**/*.pxi",
    "examples/*.ipynb",
    "examples/*.py",
    "tests/**/*.py",
    "tests/golden/**/*",
    "tests/system/fuzz/corpus/**/*",
    "tests/system/fuzz/*.md",
    "asv_benchmarks/*.py",
    "asv_benchmarks/*.md",
    "asv_benchmarks/*.json",
    "asv_benchmarks/*.toml",
    "asv_benchmarks/benchmarks/*.py",
    "asv_benchmarks/peers/*.py",
    "asv_benchmarks/peers/*.md",
    "asv_benchmarks/peers/*.json",
)


def extension(path: Path) -> Extension:
    # Sources stay .pyx: cythonize() here would put generated C into the sdist instead of them.
    return Extension(
        ".".join(("fastpack", *path.with_suffix("").parts)),
        [path.as_posix()],
        depends=[path.as_posix() for pattern in ("*.h", "*.pxi") for path in sorted(Path("kernels").rglob(pattern))],
        include_dirs=["kernels", "kernels/codecs"],
    )


class BuildExt(build_ext):
    def build_extensions(self) -> None:
        for ext in self.extensions:
            ext.extra_compile_args = compile_flags(self.compiler.compiler_type)
        self.translate()
        super().build_extensions()

    def translate(self) -> None:
        """Run Cython for all modules at once: the threads that run the C compiler would share its state, and fail."""
        from Cython.Build.Dependencies import cythonize

        forks = sys.platform == "linux"  # elsewhere its processes would run this file again
        translated = cythonize(
            self.extensions,
            nthreads=os.cpu_count() or 1 if forks else 0,
            force=self.force,
            quiet=not self.verbose,
            build_dir=self.build_temp,
            include_path=["kernels", "kernels/codecs"],
            compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=SHARED,
        )
        sources = {ext.name: ext.sources for ext in translated}
        for ext in self.extensions:
            ext.sources = sources[ext.name]


def compile_flags(compiler: str) -> list[str]:
    """Never -march or /arch: one wheel serves every CPU."""
    if compiler == "msvc":
        return ["/Od", "/Zi"] if DEBUG else ["/O2"]
    # Without fused multiply-adds, which only some CPUs have: a blend of datasets is the same everywhere.
    return [*(("-O0", "-g") if DEBUG else ("-O3", "-g0")), "-ffp-contract=off"]


class SDist(sdist):
    """An sdist that can test and benchmark itself (MANIFEST.in would be one more top-level entry)."""

    def make_distribution(self) -> None:
        for pattern in SDIST_EXTRAS:
            self.filelist.extend(str(p) for p in sorted(Path().glob(pattern)) if p.is_file())
        super().make_distribution()


setup(
    cmdclass={
        "build_ext": BuildExt,
        "build_manpages": build_manpages,
        "build_py": get_build_py_cmd(build_py),
        "sdist": SDist,
    },
    ext_modules=[
        Extension(SHARED, []),  # first, as it takes longest; its source is Cython's
        *(extension(path) for path in sorted(Path("kernels").rglob("*_cy.pyx"))),
    ],
    options={"build_ext": {"parallel": os.cpu_count()}},
)
