"""What is left of a run, also of one whose objects a command made: against a scripted server, cleanup simulated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.driving.scripted import scripted_api
from workbench.scaletest import cleanup, records
from workbench.scaletest.cleanup import Cleaned
from workbench.scaletest.planning import Plan, plan
from workbench.scaletest.running import Place
from workbench.scaletest.running.emptying import empty
from workbench.scaletest.scenario import parse

GIVEN = parse(
    "{name: a, namespace: tests, arrival: {process: constant, rate_per_s: 1, n: 4}, workloads: [{kind: Job, gpus: 1}]}"
)


def journal(folder: Path, drawn: Plan, mode: str) -> None:
    """Of the four, the first two were accepted, the third was perhaps made, the last was not begun."""
    made = [records.Begun(drawn.run, 1, 1, mode=mode), *(records.Intent(index, 1) for index in range(3))]
    acked = [records.Acked(index, 1, 2, 0) for index in range(2)]
    (folder / records.JOURNAL).write_bytes(b"".join(map(records.line, [*made, *acked])))


@pytest.fixture(autouse=True)
def simulated_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finds nothing with our labels: so it is with what others' commands make."""

    async def clean(api: Any, run: str, namespaces: Any, *rest: Any, **more: Any) -> Cleaned:
        return Cleaned(run, tuple(namespaces), {})

    monkeypatch.setattr(cleanup, "clean", clean)


def emptied(folder: Path, drawn: Plan, there: list[int]) -> tuple[Cleaned, int]:
    async def body() -> tuple[Cleaned, int]:
        async with scripted_api() as (server, api):
            for index in there:
                server.put(drawn.one(index).requests()[0])
            return await empty(api, drawn, folder, Place(None, "c")), len(server.gets)

    return asyncio.run(body())


def test_what_a_command_made_and_nobody_deleted_is_told_as_left(tmp_path: Path) -> None:
    drawn = plan(GIVEN)
    journal(tmp_path, drawn, "command")
    found, _ = emptied(tmp_path, drawn, [0, 2])
    assert found.left == {"tests/jobs (made by the command, without our labels)": 2}
    assert list(found.examples.values()) == [[drawn.one(0).name, drawn.one(2).name]]
    assert not found.complete


def test_what_a_command_made_and_its_owner_deleted_is_not_left(tmp_path: Path) -> None:
    drawn = plan(GIVEN)
    journal(tmp_path, drawn, "command")
    found, looked = emptied(tmp_path, drawn, [3])
    assert (found.complete, looked) == (True, 3)


def test_of_our_own_objects_the_labels_tell_all(tmp_path: Path) -> None:
    drawn = plan(GIVEN)
    journal(tmp_path, drawn, "api")
    assert emptied(tmp_path, drawn, [0]) == (Cleaned(drawn.run, drawn.namespaces, {}), 0)
