"""The benchmark gate: thresholds for every ratio, early ends of measurements, and detection of a slowdown."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "asv_benchmarks"
SLOWED_DOWN = """
import runpy, sys
from fastpack import kernels
kernels.TABLE["walk_tar"]["cython"] = "codecs.tar_np"  # the specification in Python instead of the kernel
sys.argv = ["report.py", "--check", "--only", "tar.ShardScans.track_scan [large pictures]"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import report.py with its folder on the path, as when it runs as a script."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return load("report", FOLDER / "report.py")


def thresholds_in(report: ModuleType, tmp_path: Path, text: str) -> Any:
    path = tmp_path / "thresholds.toml"
    path.write_text(f"tolerance = 0.5\nretries = 2\nenough = 1.5\n[example.Example]\n{text}")
    return report.Thresholds(path)


def benchmark_of(track: Callable[[Any], float], unit: str = "x example") -> Any:
    example = type("Example", (), {"__module__": "benchmarks.example", "track": track})
    track.title, track.unit = "example", unit  # type: ignore[attr-defined]
    return example()


def test_every_ratio_has_a_threshold_and_the_reverse(report: ModuleType) -> None:
    thresholds, named = report.Thresholds(), set()
    for suite in report.suites():
        for track in report.tracks(suite):
            name = report.full_name(suite, track)
            named.add(name)
            for arguments in report.parameters(suite):
                assert thresholds.of(name).bar_of(report.shown(arguments)) > 0, name
    assert named == set(thresholds)
    assert len(named) > 40


def test_an_explicit_gate_has_a_reason_and_is_not_above_the_target(report: ModuleType) -> None:
    thresholds = report.Thresholds()
    for name in thresholds:
        threshold = thresholds.of(name)
        assert (threshold.gate is None) == (threshold.why == ""), name
        if threshold.gate is None:
            continue
        for parameter in threshold.bar if isinstance(threshold.bar, dict) else [""]:
            assert threshold.gate_of(parameter, "x") <= threshold.bar_of(parameter), name


def test_a_missing_threshold_is_an_error_with_the_line_to_add(report: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"no bar for the benchmark a\.B\.track; add a line `a\.B\.track\.bar"):
        report.Thresholds().of("a.B.track")


def test_a_ratio_below_its_gate_is_measured_again(report: ModuleType, tmp_path: Path) -> None:
    thresholds = thresholds_in(report, tmp_path, "track.bar = 10\n")
    values = iter([4.0, 6.0, 1.0])
    result = report.measured(benchmark_of(lambda _: next(values)), "track", (), thresholds)
    assert (result.values, result.gate, result.passes) == ((4.0, 6.0), 5.0, True)
    low = report.measured(benchmark_of(lambda _: 4.9), "track", (), thresholds)
    assert (low.values, low.passes) == ((4.9, 4.9, 4.9), False)


@pytest.mark.parametrize(("value", "passes"), [(19.0, True), (21.0, False)])
def test_if_less_is_better_the_gate_is_above_the_target(
    report: ModuleType, tmp_path: Path, value: float, passes: bool
) -> None:
    thresholds = thresholds_in(report, tmp_path, "track.bar = 10\n")
    result = report.measured(benchmark_of(lambda _: value, "ms (less is better)"), "track", (), thresholds)
    assert (result.gate, result.passes, result.value) == (20.0, passes, value)


def test_a_complaint_contains_the_row_the_values_and_commands(report: ModuleType, tmp_path: Path) -> None:
    thresholds = thresholds_in(
        report, tmp_path, '[example.Example.track]\nbar = { a = 10 }\ngate = 8\nwhy = "Because."\n'
    )
    values = iter([5.0, 6.0, 5.5])
    result = report.measured(benchmark_of(lambda *_: next(values)), "track", ("a",), thresholds)
    text = result.complaint()
    for line in (
        "TOO SLOW: example.Example.track [a]: example",
        "6 x example (attempts: 5, 6, 5.5)",
        "8: Because.",
        "10; both are in asv_benchmarks/thresholds.toml",
        "python asv_benchmarks/report.py --check --only 'example.Example.track [a]'",
        "asv continuous --factor 1.3 --bench 'example.Example.track' main HEAD",
    ):
        assert line in text


def test_rounds_end_early_only_if_the_ratio_is_safe(report: ModuleType) -> None:
    common = importlib.import_module("benchmarks.common")
    now, calls = [0.0], []

    def takes(seconds: float) -> Callable[[], None]:
        def work() -> None:
            now[0] += seconds
            calls.append(seconds)

        return work

    def rounds(enough: float) -> int:
        calls.clear()
        with common.enough_at(enough):
            assert common.ratio(takes(1), takes(4), rounds=7, clock=lambda: now[0]) == 4
        return len(calls) // 2 - 1  # the first pair is the warm-up

    assert rounds(1.9) == 1
    assert rounds(3.9) == 3
    assert rounds(4.1) == 7
    assert rounds(float("inf")) == 7
    with common.enough_at(2):  # short rounds never end early
        calls.clear()
        common.ratio(takes(0.001), takes(0.01), rounds=7, clock=lambda: now[0])
    assert len(calls) == 16


@pytest.mark.slow
def test_the_gate_detects_an_artificial_slowdown() -> None:
    done = subprocess.run([sys.executable, "-c", SLOWED_DOWN], cwd=FOLDER, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "TOO SLOW: tar.ShardScans.track_scan [large pictures]" in done.stdout
    assert "gate       5: " in done.stdout


def test_the_offline_page_loads_nothing(report: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("asv")
    page = load("page", FOLDER / "page.py")
    monkeypatch.delitem(sys.modules, "page")
    values = {"a": [5.0, 9.0], "b": [1.0, float("nan")]}

    def result(commit: str) -> Any:
        return SimpleNamespace(
            commit_hash=commit * 40,
            params={"machine": "one"},
            get_result_keys=lambda _: ["example.Example.track", "example.Example.time_it"],
            get_result_value=lambda name, _params: values[commit] if name.endswith("track") else [0.25],
        )

    benchmarks = {
        "example.Example.track": {"params": [["'large'", "'small'"]], "unit": "x <example>"},
        "example.Example.time_it": {"params": [], "unit": "seconds"},
    }
    thresholds = report.Thresholds()
    thresholds._rows["example.Example.track"] = report.Threshold({"large": 2, "small": 8}, 0.5)
    charts = page.charts([result("a"), result("b"), result("c")], benchmarks, {"a" * 40: 1, "b" * 40: 2}, thresholds)
    assert [(chart.name, len(chart.lines)) for chart in charts] == [
        ("example.Example.track", 2),
        ("example.Example.time_it", 1),
    ]
    assert charts[0].lines[0].points == {1: 5.0, 2: 1.0}
    assert charts[0].lines[1].points == {1: 9.0}
    assert [charts[0].late(line) for line in charts[0].lines] == [False, False]
    text = page.page("fastpack", charts, {1: "a" * 40, 2: "b" * 40})
    assert text.count("<svg") == 2
    assert text.count('class="bar"') == text.count('class="gate"') == 2
    assert "x &lt;example&gt;" in text
    assert not [link for link in ("http", "src=", "<script", "@import", "url(") if link in text]


def test_the_page_gets_all_rows(report: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/measured.md").write_text((FOLDER.parent / "docs/measured.md").read_text())
    thresholds = thresholds_in(report, tmp_path, "track_a.bar = 1\ntrack_b.bar = 1")
    example = benchmark_of(lambda _: 2.0)
    type(example).track_a = type(example).track_b = type(example).track
    rows = [report.measured(example, name, (), thresholds) for name in ("track_a", "track_b")]
    report.write_page(rows, tmp_path)
    assert (tmp_path / "docs/measured.md").read_text().count("| **2.00** x example | 1 |") == 2


def test_measured_rows_are_replaced_or_added_at_their_places(report: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    before = (FOLDER.parent / "docs/measured.md").read_text()
    (tmp_path / "docs/measured.md").write_text(before)
    name, suites = "conversion.Conversion.track_convert", {suite.__name__: suite for suite in report.suites()}
    track = suites["Conversion"].track_convert
    for value in (0.25, 0.75):
        rows = [report.Result(name, track.title, to, (value,), track.unit, 0.8, 0.1) for to in ("megatron", "mds")]
        report.write_page(rows, tmp_path, partial=True)
    lines = (tmp_path / "docs/measured.md").read_text().splitlines()
    at = lines.index(f"| {track.title} | megatron | **0.75** {track.unit} | 0.8 |")
    assert f"| {track.title} | mds | **0.75** {track.unit} | 0.8 |" in lines[at + 1 : at + 5]
    assert not any("**0.25** x dd" in line for line in lines)
    others = [
        line for line in before.splitlines() if line.startswith("| ") and not line.startswith(f"| {track.title} |")
    ]
    assert [line for line in lines if line in others] == others
