"""The audit log: followed through rotations, rows of our namespaces, counts of everybody's requests."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from workbench.scaletest import tables
from workbench.scaletest.cluster_api.connection import NS_PER_S, now_ns, parse_timestamp
from workbench.scaletest.observation import audit_log, run_records
from workbench.scaletest.observation.audit_log import AuditFollower, RequestCounts, RotatingTail

NAMESPACE = "ours"


def text(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%S}.{ns % NS_PER_S // 1000:06d}Z"


def line(
    name: str = "p1",
    *,
    resource: str = "pods",
    subresource: str = "",
    verb: str = "create",
    code: int = 201,
    at_ns: int | None = None,
    took_ns: int = 2_000_000,
    namespace: str = NAMESPACE,
    stage: str = "ResponseComplete",
    agent: str = "kube-scheduler/v1.36.3 (linux/amd64) kubernetes/1a2b/scheduler",
    **about: Any,
) -> bytes:
    at_ns = now_ns() if at_ns is None else at_ns
    reference = {"resource": resource, "subresource": subresource, "namespace": namespace, "name": name, **about}
    found = {
        "stage": stage,
        "verb": verb,
        "auditID": f"audit-{name}",
        "user": {"username": "admin"},
        "userAgent": agent,
        "objectRef": {key: value for key, value in reference.items() if value},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": text(at_ns - took_ns),
        "stageTimestamp": text(at_ns),
    }
    return json.dumps(found).encode() + b"\n"


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


class Followed(AuditFollower):
    """A log that is followed from what it holds already, and what came of it."""

    def __init__(self, folder: Path, *before: bytes, name: str = "audit.log") -> None:
        self.log = folder / name
        append(self.log, *before)
        self.rows: list[run_records.Seen] = []
        self.notes: list[str] = []
        super().__init__(self.log, (NAMESPACE,), write=self.rows.append, note=self.notes.append)

    def names_of(self, *lines: bytes) -> list[str]:
        """Of all rows, once these lines are in the log and it is read to its end."""
        append(self.log, *lines)
        asyncio.run(self.finish())
        return [one.name for one in self.rows]


def test_bindings_and_creations_in_our_namespaces_are_rows(tmp_path: Path) -> None:
    found = Followed(tmp_path, line("before"))
    bound = line("p1", subresource="binding", uid="uid-p1")
    others = [line("p3", namespace="theirs"), line("p4", code=409), line("p5", verb="update"), line("")]
    others += [line("c", resource="configmaps"), line("p6", stage="ResponseStarted"), line("p7", subresource="status")]
    found.names_of(bound, line("j1", resource="jobs"), line("p2"), *others)
    assert [(one.transition, one.kind, one.name, one.uid, one.owner, one.owner_name) for one in found.rows] == [
        ("bound", "Pod", "p1", "uid-p1", "uid-p1", "p1"),
        ("created", "Job", "j1", "audit-j1", None, "j1"),
        ("created", "Pod", "p2", "audit-p2", None, "p2"),
    ]
    assert {(one.resource, one.reason) for one in found.rows} == {("audit", "kube-scheduler")}
    when = parse_timestamp(found.rows[0].server)
    assert when is not None
    assert when.resolution_ns == 1000
    assert when.ns == parse_timestamp(json.loads(bound)["stageTimestamp"]).ns  # type: ignore[union-attr]
    assert found.notes == []


def test_a_log_that_is_rotated_is_read_to_its_end_and_the_next_from_its_begin(tmp_path: Path) -> None:
    found = Followed(tmp_path, line("before"))
    append(found.log, line("a"))
    assert found._read_block()
    append(found.log, line("b"))
    found.log.rename(tmp_path / "audit-1.log")
    append(found.log, line("c"))
    assert found._read_block()
    assert found._read_block()
    assert found.names_of(line("d")) == ["a", "b", "c", "d"]


def test_a_log_that_is_away_between_two_is_waited_for(tmp_path: Path) -> None:
    found = Followed(tmp_path, line("before"))
    found.log.rename(tmp_path / "audit-1.log")
    assert not found._read_block()
    assert found.names_of(line("c")) == ["c"]


def test_a_log_that_is_emptied_is_read_from_its_begin(tmp_path: Path) -> None:
    found = Followed(tmp_path, *[line("before")] * 5)
    found.log.write_bytes(b"")
    assert found.names_of(line("a")) == ["a"]


def test_a_line_that_was_begun_before_us_is_left_out(tmp_path: Path) -> None:
    whole = line("torn")
    found = Followed(tmp_path, whole[:100])
    assert found.names_of(whole[100:], line("a")) == ["a"]
    found.write_requests(tmp_path, now_ns())
    assert found.notes == []


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_LINE_BYTES", 2000)
    found = Followed(tmp_path)
    odd = (b"garbage\n", b"[]\n", b'{"stage": 7}\n', b"x" * 5000 + b"\n", b"\xff\xfe\n")
    assert found.names_of(*odd, line("a")) == ["a"]
    found.write_requests(tmp_path, now_ns())
    assert found.notes == ["5 lines of the audit log are not valid audit events and were skipped"]


def test_what_happened_before_the_run_does_not_count(tmp_path: Path) -> None:
    found = Followed(tmp_path)
    assert found.names_of(line("old", at_ns=now_ns() - 3600 * NS_PER_S), line("new")) == ["new"]
    assert found.requests.to_frame(0)["requests"].sum() == 1


def test_requests_are_counted_per_second_client_verb_and_code(tmp_path: Path) -> None:
    found, origin = Followed(tmp_path), now_ns() // NS_PER_S * NS_PER_S
    first, second = origin + NS_PER_S, origin + 2 * NS_PER_S
    controller = "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/1a2b/job-controller"
    lines = [line("p", at_ns=first + n, took_ns=(n + 1) * 1_000_000, agent=controller) for n in range(100)]
    lines += [line("slow", verb="watch", at_ns=first, took_ns=300 * NS_PER_S), line("p", code=429, at_ns=first)]
    found.names_of(*lines, line("p", at_ns=second, subresource="binding"))
    found.write_requests(tmp_path, origin)
    table = tables.REQUESTS.read(tmp_path / "tables")
    keys = ["at_s", "client", "verb", "resource", "subresource", "code", "requests"]
    assert table.select(keys).rows() == [
        (1.0, "kube-controller-manager/job-controller", "create", "pods", "", 201, 100),
        (1.0, "kube-scheduler", "create", "pods", "", 429, 1),
        (2.0, "kube-scheduler", "create", "pods", "binding", 201, 1),
    ]
    assert table["duration_p50_s"][0] == pytest.approx(0.050)
    assert table["duration_p99_s"][0] == pytest.approx(0.099)


def test_a_second_sampler_of_a_run_adds_to_the_table(tmp_path: Path) -> None:
    origin = now_ns() // NS_PER_S * NS_PER_S
    for number in (1, 2):
        found = Followed(tmp_path, name=f"audit-{number}.log")
        found.names_of(line("a", at_ns=origin + NS_PER_S), line("b", at_ns=origin + (1 + number) * NS_PER_S))
        found.write_requests(tmp_path, origin)
    table = tables.REQUESTS.read(tmp_path / "tables")
    assert table.select("at_s", "requests").rows() == [(1.0, 2), (2.0, 1), (3.0, 1)]


def test_the_runs_begin_is_the_journals(tmp_path: Path) -> None:
    assert audit_log.read_origin_ns(tmp_path, 7) == 7
    lines = [run_records.Note(1, "text"), run_records.Begun("st-00000001", 2, 3)]
    (tmp_path / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, lines)))
    assert audit_log.read_origin_ns(tmp_path, 7) == 3


def test_a_log_that_cannot_be_followed_says_why(tmp_path: Path) -> None:
    assert audit_log.find_read_problem(tmp_path / "none") == "no such file"
    assert audit_log.find_read_problem(tmp_path) == "no such file"
    (tmp_path / "a").touch()
    assert audit_log.find_read_problem(tmp_path / "a") is None


@pytest.mark.parametrize(
    ("user", "agent", "told"),
    [
        ("admin", "", "admin"),
        ("", "", "unknown"),
        ("admin", "kubectl/v1.36.3 (linux/amd64) kubernetes/abc", "kubectl"),
        ("admin", "kube-apiserver/v0.0.0 (linux/amd64) kubernetes/$Format", "kube-apiserver"),
        ("admin", "kwok-controller/v0.8.0 (linux/amd64)", "kwok-controller"),
        ("system:serviceaccount:kube-system:gc", "kube-controller-manager/v1", "system:serviceaccount:kube-system:gc"),
        ("admin", "x" * 10_000, "x" * 120),
    ],
)
def test_a_client_is_told_by_its_controller_where_one_is_named(user: str, agent: str, told: str) -> None:
    assert audit_log.find_client_name(user, agent) == told


def test_a_tail_gives_nothing_before_something_is_written(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    append(log, b"old\n")
    tail = RotatingTail(log)
    assert tail.read() is None
    append(log, b"half")
    assert tail.read() == []
    append(log, b" whole\nnext\n")
    assert tail.read() == [b"half whole", b"next"]
    tail.close()


def test_a_log_that_breaks_while_it_is_read_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Followed(tmp_path)

    def broken(*arguments: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(audit_log.os, "pread", broken)
    asyncio.run(asyncio.wait_for(found.run(), 60))
    assert found.names_of() == []
    assert found.notes == ["reading the audit log failed: Input/output error; later requests are missing"]


KEY = ("client", "create", "pods", "", 201)


def test_nothing_asked_is_an_empty_table() -> None:
    assert RequestCounts().to_frame(0).height == 0


def test_times_count_from_the_runs_start() -> None:
    found = RequestCounts()
    found.add(100 * NS_PER_S + 7, KEY, 0.5)
    assert found.to_frame(98 * NS_PER_S + NS_PER_S // 2)["at_s"].to_list() == [1.5]


def test_a_line_that_comes_late_is_counted_in_its_own_second() -> None:
    found = RequestCounts()
    for second in (100, 101, 120, 100, 100):
        found.add(second * NS_PER_S, KEY, 0.5)
    assert found.to_frame(0).select("at_s", "requests").rows() == [(100.0, 3), (101.0, 1), (120.0, 1)]


def test_of_very_many_requests_in_a_second_a_sample_tells_the_quantiles() -> None:
    found = RequestCounts()
    for number in range(20_000):
        found.add(NS_PER_S, KEY, number / 20_000)
    row = found.to_frame(0).row(0, named=True)
    assert row["requests"] == 20_000
    assert row["duration_p50_s"] == pytest.approx(0.5, abs=0.1)
    assert 0.9 < row["duration_p99_s"] <= 1
    assert not found._open


def test_keys_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_KEYS", 3)
    found = RequestCounts()
    for number in range(10):
        found.add(NS_PER_S, (f"c{number}", "get", "pods", "", 200), 0.1)
    table = found.to_frame(0)
    assert table["requests"].sum() == 10
    assert dict(table.select("client", "requests").rows())["other"] == 7


def test_rows_beyond_the_bound_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_ROWS", 4)
    found = RequestCounts()
    for second in range(10):
        found.add(second * NS_PER_S, KEY, 0.1)
    assert found.to_frame(0).height == 4
    assert found.left_out == 6


@pytest.mark.parametrize(("q", "value"), [(0.5, 5.0), (0.99, 10.0), (0.1, 1.0), (0.11, 2.0), (1.0, 10.0)])
def test_a_quantile_is_the_least_value_that_the_share_does_not_exceed(q: float, value: float) -> None:
    assert audit_log._upper_quantile([float(number) for number in range(1, 11)], q) == value
