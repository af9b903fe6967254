"""Run one command and write what it took, as JSON, into a file.

    python launch.py REPORT COMMAND...

{"code", "cpu", "wall", "peak"}: its exit code, the seconds of its process and all that it waited for, user and system,
and the largest of their peaks of resident memory in bytes. A process of its own, because a child's peak begins with
that of whoever starts it, and this one is small. Standard library only.
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
