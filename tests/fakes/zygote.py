"""Starts `workbench` command lines in forked processes that have imported everything: many runs, and little waiting.

Reads a JSON document a line (arguments, log file); writes the process id, and later its exit code (-9 for SIGKILL).
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Serve until standard input ends."""
    import nbconvert.exporters.html  # noqa: F401 - what a run imports on its way
    import papermill  # noqa: F401
    import scipy.special  # noqa: F401

    from workbench.cli import app
    from workbench.report import cells, page  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream in (1, 2):
                os.dup2(log, stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            app.main(order["arguments"])
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
