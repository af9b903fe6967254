"""The Ray executor without a cluster; test_local_runs.py runs the commands on two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpack.distributed import ray_executor
from fastpack.distributed.plan import Plan, Task
from fastpack.distributed.ray_executor import do_task, run_on_ray
from fastpack.errors import MissingExtra


def plan_of(folder: Path) -> Plan:
    return Plan("index", str(folder / "x.parts"), {}, [], [Task("0", {}, 1)])


def test_missing_ray_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[ray\]"):
        run_on_ray(plan_of(tmp_path))


def test_finished_job_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "finished", lambda _: {"0": None})
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    run_on_ray(plan_of(tmp_path))


def test_node_without_the_shared_folder_is_an_error(tmp_path: Path) -> None:
    assert "absent" in str(do_task(str(tmp_path / "absent"), "0", str(tmp_path)))
    assert "is not visible on this machine" in str(do_task(str(tmp_path / "absent"), "0", str(tmp_path)))
    assert "No such file" in str(do_task(str(tmp_path), "0", str(tmp_path / "absent")))
