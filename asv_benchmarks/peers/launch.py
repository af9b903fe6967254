"""Run one command and write its cost to a file as JSON.

    python launch.py REPORT COMMAND...

{"code", "cpu", "wall", "peak"}: the exit code, the user and system seconds of the process and its children, and the
largest of their peaks of resident memory in bytes. A separate small process, because the peak of a child starts with
that of its parent. Standard library only.
"""

import json
import os
import sys
import time


def main() -> None:
    report, command = sys.argv[1], sys.argv[2:]
    started = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - started
    found = {"code": os.waitstatus_to_exitcode(status), "cpu": usage.ru_utime + usage.ru_stime, "wall": wall}
    with open(report, "w") as file:
        json.dump({**found, "peak": usage.ru_maxrss * 1024}, file)


if __name__ == "__main__":
    main()
