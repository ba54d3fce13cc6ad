"""What is left of a run, also of one whose objects a command made: against a scripted server, cleanup simulated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.submission.scripted import scripted_api
from workbench.scaletest.observation import run_records
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.safety.run_cleanup import CleanupResult
from workbench.scaletest.scenario.scenario_file import parse_scenario
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan
from workbench.scaletest.test_run.run_options import ClusterAccess
from workbench.scaletest.test_run.workload_deletion import empty_run

GIVEN = parse_scenario(
    "{name: a, namespace: tests, arrival: {process: constant, rate_per_s: 1, n: 4}, workloads: [{kind: Job, gpus: 1}]}"
)


def journal(folder: Path, drawn: Plan, mode: str) -> None:
    """Of the four, the first two were accepted, the third was perhaps made, the last was not begun."""
    made = [run_records.Begun(drawn.run, 1, 1, mode=mode), *(run_records.Intent(index, 1) for index in range(3))]
    acked = [run_records.Acked(index, 1, 2, 0) for index in range(2)]
    (folder / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, [*made, *acked])))


@pytest.fixture(autouse=True)
def simulated_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds nothing with our labels: so it is with what others' commands make."""

    async def clean(api: Any, run: str, namespaces: Any, *rest: Any, **more: Any) -> CleanupResult:
        return CleanupResult(run, tuple(namespaces), {})

    monkeypatch.setattr(run_cleanup, "delete_run_objects", clean)


def emptied(folder: Path, drawn: Plan, there: list[int]) -> tuple[CleanupResult, int]:
    async def body() -> tuple[CleanupResult, int]:
        async with scripted_api() as (server, api):
            for index in there:
                server.put(drawn.workload_at(index).requests()[0])
            return await empty_run(api, drawn, folder, ClusterAccess(None, "c")), len(server.gets)

    return asyncio.run(body())


def test_what_a_command_made_and_nobody_deleted_is_told_as_left(tmp_path: Path) -> None:
    drawn = draw_plan(GIVEN)
    journal(tmp_path, drawn, "command")
    found, _ = emptied(tmp_path, drawn, [0, 2])
    assert found.left == {"tests/jobs (made by the command, without our labels)": 2}
    assert list(found.examples.values()) == [[drawn.workload_at(0).name, drawn.workload_at(2).name]]
    assert not found.complete


def test_what_a_command_made_and_its_owner_deleted_is_not_left(tmp_path: Path) -> None:
    drawn = draw_plan(GIVEN)
    journal(tmp_path, drawn, "command")
    found, looked = emptied(tmp_path, drawn, [3])
    assert (found.complete, looked) == (True, 3)


def test_of_our_own_objects_the_labels_tell_all(tmp_path: Path) -> None:
    drawn = draw_plan(GIVEN)
    journal(tmp_path, drawn, "api")
    assert emptied(tmp_path, drawn, [0]) == (CleanupResult(drawn.run, drawn.namespaces, {}), 0)
