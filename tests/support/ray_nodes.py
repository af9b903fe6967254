"""Run a command on two Ray nodes in a separate network namespace with loopback only; optionally kill one node.

`python ray_nodes.py FOLDER COMMAND...` is run by `run_on_two_nodes` inside `unshare --net`, and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ranks import COMMAND

SECONDS = 200


def namespaces() -> str | None:
    """Return the reason why network namespaces are unavailable, or None."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not installed"
    tried = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no network namespaces: {tried.stderr.strip()}"


def run_on_two_nodes(folder: Path, words: Sequence[str], kill_after: int | None = None) -> dict[str, Any]:
    """Run a command with `--executor ray` in `folder`; kill_after: number of markers after which one node is killed.

    Returns {"code", "out", "err", "marked": number of markers at that time, "seconds": duration of the command}.
    """
    wish = json.dumps({"words": list(words), "kill_after": kill_after})
    inside = 'ip link set lo up && exec "$0" "$@"'
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", inside, sys.executable, __file__, str(folder), wish],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(folder: Path, wish: dict[str, Any]) -> None:
    from ray.cluster_utils import Cluster

    one = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=one)
    try:
        del one["include_dashboard"]
        second = cluster.add_node(**one)
        cluster.wait_for_nodes()
        started = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, *wish["words"], "--executor", "ray", "--address", cluster.address],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        marked = None
        if wish["kill_after"] is not None:
            marked = wait_for_markers(folder, wish["kill_after"], process)
            cluster.remove_node(second, allow_graceful=False)
        out, err = process.communicate(timeout=SECONDS)
        seconds = time.perf_counter() - started
    finally:
        cluster.shutdown()
    print(json.dumps({"code": process.returncode, "out": out, "err": err, "marked": marked, "seconds": seconds}))  # noqa: T201


def wait_for_markers(folder: Path, n: int, process: subprocess.Popen[str]) -> int:
    while process.poll() is None:
        found = len([path for path in folder.rglob("*.json") if path.stem.isdigit() and ".parts" in str(path)])
        if found >= n:
            return found
        time.sleep(0.02)
    return -1


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
