"""Run a command once by the shell: its time, CPU time and peak memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Print the document; a command that fails ends this script with its exit code."""
    environment = dict(os.environ)
    command = environment.pop("PROGRAM_COMMAND")
    folder = environment.pop("PROGRAM_FOLDER", None)
    environment["PATH"] = environment.pop("PROGRAM_PATH", environment["PATH"])
    if environment.pop("PROGRAM_OF_STACK", ""):
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    # Into a file: some programs do less work where they see that nothing reads what they print.
    with open("output", "wb") as output:
        start = time.perf_counter_ns()
        done = subprocess.run(  # noqa: S602 - the command of whoever measures
            command, shell=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, check=False
        )
        elapsed_ms = (time.perf_counter_ns() - start) / 1e6
        output_bytes = os.fstat(output.fileno()).st_size
    if done.returncode:
        sys.stderr.write(f"the command ended with exit code {done.returncode}\n")
        sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = {"elapsed_ms": elapsed_ms, "peak_mib": usage.ru_maxrss / 1024, "output_bytes": output_bytes}
    cpu_ms = 1e3 * (usage.ru_utime + usage.ru_stime)
    document = {"name": "Program", "@parameters": {}, "@result": results, "@cpu": {"elapsed_ms": cpu_ms}}
    print(json.dumps(document))  # noqa: T201 - the document


if __name__ == "__main__":
    main()
