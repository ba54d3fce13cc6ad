"""From the lines that a run wrote to its raw tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, record_of, tables
from workbench.core.errors import InputError
from workbench.scaletest.analysis.raw_tables import write_raw_tables
from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import (
    Acked,
    Beat,
    Begun,
    Failed,
    Gap,
    Intent,
    Load,
    NodeSeen,
    Seen,
    Skew,
    Stopped,
)
from workbench.scaletest.tables import BEATS, GAPS, LOAD, NODES, SCHEDULE, SKEW, SUBMISSIONS, TRANSITIONS

ORIGIN = 1_795_315_530 * NS_PER_S  # 2026-11-22T02:45:30Z
RUN = "st-00000001"


def at(seconds: float) -> int:
    return ORIGIN + round(seconds * NS_PER_S)


def written(folder: Path, name: str, *lines: Any, cut: bytes = b"") -> None:
    (folder / name).write_bytes(b"".join(map(run_records.encode_line, lines)) + cut)


def submitted(folder: Path, *lines: Any, **begun: Any) -> None:
    written(folder, run_records.JOURNAL, Begun(RUN, at(0), ORIGIN, **begun), *lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of four workloads, planned and begun."""
    SCHEDULE.write(tables(Plan([0.0, 1.0, 2.0, 3.0]))["schedule"], tmp_path / "tables")
    run_records.write_conditions(tmp_path, record_of(Plan([0.0])))
    submitted(tmp_path)
    return tmp_path


def reduced(folder: Path, table: Any) -> pl.DataFrame:
    write_raw_tables(folder)
    return table.read(folder / "tables")


def test_each_ending_of_a_workload_has_its_row(folder: Path) -> None:
    submitted(
        folder,
        Intent(0, at(0.001)),
        Acked(0, at(0.002), at(0.004), 201, "uid-0", "2026-11-22T02:45:30Z", 3, 2, NS_PER_S),
        Intent(1, at(1)),
        Intent(2, at(2)),
        Failed(2, at(2), at(2.5), "no such priority", 403),
        # After a crash: the first try had reached the server.
        Begun(RUN, at(5), ORIGIN, resumed=True),
        Acked(1, at(5.1), at(5.2), 409, "uid-1", "2026-11-22T02:45:31Z", known=True),
        Stopped(at(6), "interrupted"),
    )
    rows = reduced(folder, SUBMISSIONS).to_dicts()
    assert [row["status"] for row in rows] == ["created", "known", "failed", "unsent"]
    first, known, failed, unsent = rows
    assert (first["sent_s"], first["acked_s"], first["created_s"]) == (pytest.approx(0.002), pytest.approx(0.004), 0)
    assert (first["attempts"], first["throttled"], first["throttled_s"]) == (3, 2, 1.0)
    # Nobody was there when it was accepted; it was sent when the intent says, not when it was found.
    assert (known["sent_s"], known["acked_s"], known["http_status"]) == (1.0, None, 409)
    assert (failed["reason"], failed["http_status"], failed["acked_s"]) == ("no such priority", 403, None)
    assert (unsent["sent_s"], unsent["attempts"], unsent["uid"]) == (None, 0, None)


def test_a_success_counts_before_an_earlier_failure(folder: Path) -> None:
    ended = (Failed(0, at(0), at(1), "timeout"), Acked(0, at(4), at(5), 201, "uid-0"))
    submitted(folder, *ended)
    assert reduced(folder, SUBMISSIONS)["status"][0] == "created"


def test_server_times_keep_their_resolution(folder: Path) -> None:
    stamps = [f"2026-11-22T02:45:32{part}Z" for part in ("", ".250000", ".123456789")]
    stamps += ["0001-01-01T00:00:00Z", None]
    seen = [Seen("pod", "created", f"uid-{n}", "p", "n", at(2.5), server=text) for n, text in enumerate(stamps)]
    written(folder, run_records.OBSERVED, *seen)
    found = reduced(folder, TRANSITIONS)
    assert found["server_s"].to_list() == [2.0, 2.25, pytest.approx(2.123456789), None, None]
    assert found["resolution_s"].to_list() == [1.0, pytest.approx(1e-6), pytest.approx(1e-9), None, None]


def test_of_a_transition_the_first_arrival_counts(folder: Path) -> None:
    again = [
        Seen("pod", "created", "uid", "p", "n", at(second), session=number) for number, second in enumerate((1, 9))
    ]
    written(folder, run_records.OBSERVED, *again, Seen("pod", "created", "other", "p", "n", at(9)))
    assert reduced(folder, TRANSITIONS).select("uid", "arrival_s").rows() == [("uid", 1.0), ("other", 9.0)]


def test_what_a_kill_cut_off_is_left_out(folder: Path) -> None:
    written(folder, run_records.OBSERVED, Seen("pod", "created", "uid", "p", "n", at(1)), cut=b'{"type":"seen","resour')
    assert reduced(folder, TRANSITIONS).height == 1


def test_health_and_nodes_have_their_tables(folder: Path) -> None:
    written(
        folder,
        run_records.HEALTH,
        Gap("pod", at(1), at(3), "end of stream", True, 5),
        Beat(at(1), at(1.002), at(1.0015)),
        Beat(at(2), at(2.002)),
        Skew(at(0), -2_000_000, 1_000_000, 200),
        Load(at(1), 0.1, 1 << 27, 0.5),
    )
    written(
        folder,
        run_records.OBSERVED,
        NodeSeen("sim-0", at(0), True, 8, 64.0, 1 << 39, 250, True),
        NodeSeen("sim-0", at(9), False),
    )
    assert reduced(folder, GAPS).rows() == [("pod", 1.0, 3.0, "end of stream", True, 5)]
    assert BEATS.read(folder / "tables")["lag_s"].to_list() == [pytest.approx(-0.0005), None]
    assert SKEW.read(folder / "tables").rows() == [(0.0, -0.002, 0.001, 200)]
    assert LOAD.read(folder / "tables")["host_busy"].to_list() == [0.5]
    (node,) = NODES.read(folder / "tables").to_dicts()
    assert (node["name"], node["ready"], node["simulated"], node["gpus"]) == ("sim-0", True, True, 8)


def test_a_node_that_came_up_late_has_capacity(folder: Path) -> None:
    written(
        folder,
        run_records.OBSERVED,
        NodeSeen("late", at(0), False),
        NodeSeen("late", at(5), True, 8, 64.0, 1 << 39, 250, True),
        NodeSeen("grown", at(0), True, 4, 32.0, 1 << 38, 110),
        NodeSeen("grown", at(5), False, 8, 32.0, 1 << 38, 110),
        NodeSeen("deleted", at(0), True, 8, 64.0, 1 << 39, 250),
        NodeSeen("deleted", at(9), False),
        NodeSeen("never", at(0), False, 8, 64.0, 1 << 39, 250),
    )
    rows = {row["name"]: row for row in reduced(folder, NODES).to_dicts()}
    assert {name: (row["ready"], row["gpus"]) for name, row in rows.items()} == {
        "late": (True, 8),
        "grown": (True, 8),
        "deleted": (True, 8),
        "never": (False, 8),
    }
    assert (rows["late"]["simulated"], rows["late"]["cpus"], rows["late"]["pods"]) == (True, 64.0, 250)
    assert not rows["never"]["simulated"]


def test_a_commands_exit_code_is_no_answer_of_the_server(folder: Path) -> None:
    ended = (Acked(0, at(0), at(1), 0), Acked(1, at(1), at(2), 201), Failed(2, at(2), at(3), "no cluster"))
    submitted(folder, *ended, mode="command")
    found = reduced(folder, SUBMISSIONS)
    assert found["http_status"].to_list() == [None, 201, None, None]
    assert found["status"].to_list() == ["created", "created", "failed", "unsent"]


def test_a_run_that_saw_nothing_has_empty_tables(folder: Path) -> None:
    assert reduced(folder, TRANSITIONS).is_empty()
    assert SUBMISSIONS.read(folder / "tables")["status"].to_list() == ["unsent"] * 4


def test_reducing_again_gives_the_same(folder: Path) -> None:
    written(folder, run_records.OBSERVED, Seen("pod", "created", "uid", "p", "n", at(1)))
    once = reduced(folder, TRANSITIONS)
    assert reduced(folder, TRANSITIONS).equals(once)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (run_records.JOURNAL, b"", "nothing was submitted"),
        (run_records.OBSERVED, b"not json\n", "not the lines of a scale test"),
        (run_records.HEALTH, b'{"type": "beat", "sent_ns": "early"}\n', "not the lines of a scale test"),
    ],
)
def test_files_that_cannot_be_read_are_named(name: str, content: bytes, told: str, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=told) as error:
        write_raw_tables(folder)
    assert name in str(error.value)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder of a scale test"):
        write_raw_tables(tmp_path)
