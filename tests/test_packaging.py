"""Publishing: the planned builds, the workflows that call .ci/run, and the packages of the distribution."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CI = (ROOT / ".ci" / "run").read_text()
STAGES = re.findall(r"^#   ([a-z]+)   ", CI, re.MULTILINE)


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job.get("steps", ())]


def matrices(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [job["strategy"]["matrix"] for job in jobs if "strategy" in job]


def test_the_stages_of_ci_are_documented_and_defined() -> None:
    assert STAGES == [
        "quickstart",
        "tests",
        "pythons",
        "slow",
        "lint",
        "docs",
        "stores",
        "torch",
        "installed",
        "benchmarks",
        "sbom",
        "ray",
        "foreign",
    ]
    (default,) = re.findall(r"stages=\((\w.*)\)", CI)
    assert [*default.split(), "sbom", "ray", "foreign"] == STAGES
    for stage in STAGES:
        assert re.search(rf"^{stage}\(\) {{", CI, re.MULTILINE), stage


def test_an_unknown_stage_is_rejected_first() -> None:
    done = subprocess.run([ROOT / ".ci" / "run", "nothing"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no stage nothing" in done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_only_call_ci_run(workflow: Path) -> None:
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    assert all("\n" not in run.strip() for run in runs), "one command per step; the logic belongs in .ci/run"
    for run in runs:
        if run.startswith(".ci/run"):
            named = run.split()[1:] if "${{" not in run else stages_of(workflow)
            assert named
            assert set(named) <= set(STAGES)
        else:
            assert run == "pipx run build --sdist"
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_actions_are_pinned_and_only_publishing_gets_an_identity() -> None:
    for workflow in WORKFLOWS:
        for used in re.findall(r"uses: (\S+)(.*)", workflow.read_text()):
            assert used[0].startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", used[0]), used
            assert used[0].startswith("./") or re.fullmatch(r" # v[\d.]+", used[1]), f"{used}: name the version"
        jobs = yaml.safe_load(workflow.read_text())["jobs"]
        trusted = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
        assert trusted == {"release": {"publish"}, "docs": {"deploy"}}.get(workflow.stem, set())
    publish = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]["publish"]
    assert publish["environment"]["name"] == "pypi"
    assert "password" not in str(publish)


def test_the_citation_the_recipe_and_the_package_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    project = PROJECT["project"]
    assert recipe["context"]["version"] == citation["version"] == project["version"]
    assert citation["license"] == recipe["about"]["license"] == project["license"]
    names = {re.split(r"[ >;]", requirement)[0] for requirement in recipe["requirements"]["run"]} - {"python"}
    assert names == {re.split(r"[ >;]", requirement)[0] for requirement in project["dependencies"]}
    wanted = {re.match(r"[\w-]+>=[\d.]+", requirement) for requirement in project["dependencies"]}
    given = {requirement.replace(" ", "") for requirement in recipe["requirements"]["run"]}
    assert {match[0] for match in wanted if match} <= given


def stages_of(workflow: Path) -> list[str]:
    (matrix,) = matrices(workflow)
    return " ".join([*matrix["stages"], *(entry["stages"] for entry in matrix["include"])]).split()


def test_the_workflows_together_run_every_stage() -> None:
    names = ("test", "benchmarks", "docs", "release")
    test, *others = (ROOT / ".github" / "workflows" / f"{name}.yml" for name in names)
    runs = [step.get("run", "") for workflow in others for step in steps(workflow)]
    found = stages_of(test) + [stage for run in runs for stage in run.split()[1:]]
    assert sorted(found) == sorted(STAGES)


def test_the_workflows_and_the_wheels_have_the_same_pythons() -> None:
    (matrix,) = matrices(ROOT / ".github" / "workflows" / "test.yml")
    wheels = [f"cp{version.replace('.', '')}-*" for version in matrix["python"]]
    assert PROJECT["tool"]["cibuildwheel"]["build"] == wheels
    assert PROJECT["project"]["requires-python"] == f">={matrix['python'][0]}"


@pytest.mark.parametrize(
    ("platform", "architecture", "tags"),
    [
        ("linux", "x86_64", ["manylinux_x86_64", "musllinux_x86_64"]),
        ("linux", "aarch64", ["manylinux_aarch64", "musllinux_aarch64"]),
        ("macos", "x86_64", ["macosx_x86_64"]),
        ("macos", "arm64", ["macosx_arm64"]),
        ("windows", "AMD64", ["win_amd64"]),
    ],
)
def test_cibuildwheel_lists_the_wheels_of_each_system(platform: str, architecture: str, tags: list[str]) -> None:
    tool = shutil.which("cibuildwheel")
    if tool is None:
        pytest.skip("cibuildwheel is not installed; .ci/run counts the builds")
    command = [tool, "--print-build-identifiers", "--platform", platform, "--archs", architecture, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(f"cp3{minor}-{tag}" for minor in (11, 12, 13, 14) for tag in tags)


def test_install_commands_use_the_name_of_the_distribution() -> None:
    """`fastpack` on the package index is another project, so commands must use fastpack-llm."""
    assert PROJECT["project"]["name"] == "fastpack-llm"
    assert {"authors", "urls", "classifiers"} <= PROJECT["project"].keys()
    texts = [path for pattern in ("*.md", "docs/**/*.md", "examples/*.py") for path in ROOT.glob(pattern)]
    texts += [path for folder in ("fastpack", "kernels", "asv_benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert len(texts) > 30
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts
        for line in path.read_text().splitlines()
        if re.search(r"(pip install|pypi\.org)[^\n`]*(?<!&& )\bfastpack\b(?!-llm)|'fastpack\[", line)
    ]
    assert found == []


def test_every_package_is_listed_and_every_kernel_has_a_stub() -> None:
    folders = {path.parent for path in (ROOT / "fastpack").rglob("*.py")} if (ROOT / "fastpack").is_dir() else set()
    if not folders:
        pytest.skip("outside a checkout")
    named = set(PROJECT["tool"]["setuptools"]["packages"])
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    linked = {"fastpack.kernels", "fastpack.kernels.codecs"}  # symbolic links in the checkout
    assert found - linked == named - linked
    assert {path.stem for path in (ROOT / "kernels").rglob("*_cy.pyx")} == {
        path.stem for path in (ROOT / "kernels").rglob("*_cy.pyi")
    }
    assert (ROOT / "fastpack" / "py.typed").is_file()


def test_compile_flags_match_the_compiler() -> None:
    source = (ROOT / "setup.py").read_text()
    function = source[source.index("def compile_flags") : source.index("class SDist")]
    for debug, expected in (
        (False, {"msvc": ["/O2"], "unix": ["-O3", "-g0", "-ffp-contract=off"]}),
        (True, {"unix": ["-O0", "-g", "-ffp-contract=off"]}),
    ):
        space: dict[str, Any] = {"DEBUG": debug}
        exec(function, space)
        for compiler, flags in expected.items():
            assert space["compile_flags"](compiler) == flags
    assert "-march" not in function.replace("Never -march", "")


def test_compiler_builtins_are_guarded() -> None:
    """MSVC has no __builtin_*, so kernels use such functions only inside a preprocessor condition."""
    for path in sorted((ROOT / "kernels").rglob("*")):
        if path.suffix not in (".pyx", ".pxi", ".h"):
            continue
        text = path.read_text()
        if "__builtin_" in text or "__attribute__" in text:
            assert re.search(r"#if.*(_MSC_VER|__GNUC__|FASTPACK_X86)", text), path.name
