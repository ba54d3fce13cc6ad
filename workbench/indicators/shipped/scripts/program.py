"""Run a command once by the shell: its time, CPU time and peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

REPORT = 9
"""Descriptor of the pipe: a shell knows only one digit."""
# A process starts with the peak of the one that it was forked from, here Python's. So a shell starts the command and
# becomes the Python that reads what its children used.
STARTER = f'/bin/sh -c "$1" {REPORT}>&-; echo "$?" >&{REPORT}; exec "$2" -I -S -c "$3"'
READER = (
    "import os, resource; used = resource.getrusage(resource.RUSAGE_CHILDREN);"
    f"os.write({REPORT}, b'%d %f' % (used.ru_maxrss, used.ru_utime + used.ru_stime))"
)


def main() -> None:
    """Print the document; a command that fails ends this script with its exit code."""
    environment = dict(os.environ)
    command = environment.pop("PROGRAM_COMMAND")
    folder = environment.pop("PROGRAM_FOLDER", None)
    environment["PATH"] = environment.pop("PROGRAM_PATH", environment["PATH"])
    if environment.pop("PROGRAM_OF_STACK", ""):
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    reading, writing = os.pipe()
    os.dup2(writing, REPORT)
    os.close(writing)
    words = ["/bin/sh", "-c", STARTER, "sh", command, sys.executable, READER]
    # Into a file: some programs do less work where they see that nothing reads what they print.
    with open("output", "wb") as output, open(reading, encoding="ascii") as report:
        start = time.perf_counter_ns()
        with subprocess.Popen(  # noqa: S603 - the command of whoever measures
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, pass_fds=(REPORT,)
        ):
            os.close(REPORT)
            exit_code = int(report.readline())
            elapsed_ms = (time.perf_counter_ns() - start) / 1e6
            peak_kib, cpu_s = report.read().split()
        output_bytes = os.fstat(output.fileno()).st_size
    if exit_code:
        sys.stderr.write(f"the command ended with exit code {exit_code}\n")
        sys.exit(exit_code)
    results = {"elapsed_ms": elapsed_ms, "peak_mib": int(peak_kib) / 1024, "output_bytes": output_bytes}
    document = {"name": "Program", "@parameters": {}, "@result": results, "@cpu": {"elapsed_ms": 1e3 * float(cpu_s)}}
    print(json.dumps(document))  # noqa: T201 - the document


if __name__ == "__main__":
    main()
