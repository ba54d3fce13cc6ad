"""A run folder as the submitter and the sampler leave it, of made-up times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from workbench.runs import run_folder
from workbench.scaletest.analysis import raw_tables
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import SCHEDULE

ORIGIN = datetime(2026, 1, 1, 10, 0, 0, 250_000, UTC)
ORIGIN_NS = int(ORIGIN.timestamp() * 1_000_000) * 1000
RUN = "st-00000001"


def name(index: int) -> str:
    return f"{RUN}-{index:07d}"


def at(second: float) -> str:
    """The server's stamp so long after the origin: cut to whole seconds."""
    return (ORIGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def seen(
    index: int | None, resource: str, transition: str, server: str | None, uid: str, **more: Any
) -> run_records.Seen:
    told = {"name": uid, "namespace": "runai-a", "arrival_ns": ORIGIN_NS + 60_000_000_000}
    told |= {"workload": None if index is None else name(index), "server": server}
    return run_records.Seen(resource=resource, transition=transition, uid=uid, **(told | more))


def chain(index: int, begin: float = 0.4) -> list[run_records.Seen]:
    """A workload's whole way: its job, two pods, their group, the decisions."""
    uid = f"w{index}"
    return [
        seen(index, "workload", "created", at(begin), uid),
        seen(index, "job", "created", at(begin + 1), f"{uid}-job", owner=uid),
        seen(index, "pod", "created", at(begin + 2), f"{uid}-pod-0", owner=f"{uid}-job"),
        seen(index, "pod", "created", at(begin + 4), f"{uid}-pod-1", owner=f"{uid}-job"),
        seen(index, "podgroup", "created", at(begin + 5), f"pg-{uid}", owner=uid),
        seen(index, "pod", "scheduled", at(begin + 9), f"{uid}-pod-0"),
        seen(index, "pod", "scheduled", at(begin + 12), f"{uid}-pod-1"),
    ]


def schedule_row(index: int, **changed: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "index": index,
        "name": name(index),
        "entry": "training",
        "kind": "TrainingWorkload",
        "namespace": "runai-a",
        "due_s": index * 0.1,
        "step": 0,
        "rate_per_s": 10.0,
        "pods": 2,
        "gpus_per_pod": 1.0,
        "cpus_per_pod": 0.05,
        "memory_bytes_per_pod": 1 << 20,
        "gang": False,
        "priority": None,
        "lifetime_s": None,
        "delete_after_s": None,
        "object_bytes": 500,
        "spec_sha256": "0" * 64,
    }
    return row | changed


def acked(index: int, sent_s: float) -> run_records.Acked:
    sent_ns = ORIGIN_NS + round(sent_s * 1e9)
    return run_records.Acked(index, sent_ns, sent_ns + 5_000_000, 201, created=at(sent_s))


def run(
    folder: Path, count: int, observed: Iterable[run_records.Seen], *, journal: list[Any] | None = None, **changed: Any
) -> Path:
    """Write it and reduce it."""
    made = run_folder.start_run("scaletest", folder)
    test = run_records.RunConditions(
        run=RUN,
        scenario_name="made up",
        scenario_sha256="",
        created_at=ORIGIN.isoformat(),
        context="none",
        fingerprint="",
        server_sha256="",
        server_version="",
        namespaces=("runai-a",),
        schedulers=(),
        simulated_nodes=True,
    )
    run_records.write_conditions(made.folder, test)
    made.write_table(SCHEDULE, SCHEDULE.frame(schedule_row(index, **changed) for index in range(count)))
    lines = journal if journal is not None else [acked(index, index * 0.1) for index in range(count)]
    begun = run_records.Begun(RUN, ORIGIN_NS, ORIGIN_NS)
    (made.folder / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, [begun, *lines])))
    (made.folder / run_records.OBSERVED).write_bytes(b"".join(map(run_records.encode_line, observed)))
    raw_tables.write_raw_tables(made.folder)
    return made.folder
