"""Submissions that a test starts and kills: `python -m tests.scaletest.submission.killed KUBECONFIG NAMESPACE FOLDER`.

Each line on stdin begins one, in a process of its own, forked off: twenty times the imports would take a minute. Its
process id is told at once, its exit code (or minus the signal) when it has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.scaletest.submission.scripted import plan
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.submission import SubmissionLimits, submit_plan

RUN = "st-00c0ffee"
WORKLOADS, MEMBERS = 100, 3


async def submission(kubeconfig: str, namespace: str, folder: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    # All due at once: a resumed process is held by the limit of the rate, so that there is something to kill.
    limits = SubmissionLimits(objects=10_000, rate_per_s=80.0, in_flight=16)
    async with Connection(load_target(kubeconfig, None)) as api:
        items = plan(RUN, WORKLOADS, members=MEMBERS, path=path)
        found = await submit_plan(api, items, Path(folder), run=RUN, limits=limits)
    assert found.complete, found


def begun(words: list[str]) -> int:
    """Fork one; its process id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        asyncio.run(submission(*words))
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    # Imported where it is used, and so once for all.
    load_target(sys.argv[1], None)
    import aiohttp  # noqa: F401

    for _ in sys.stdin:
        process = begun(sys.argv[1:])
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
