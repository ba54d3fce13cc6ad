"""A session on a cluster from submitting to tidying up, against a control plane on loopback that may fail."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.kubernetes.api import NODE, Object, Plane, Server, succeeded
from tests.indicators.kubernetes.making import KEY, STACKS, Good, Pod, log_of, planned
from workbench.cli.app import main
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.cluster_session import measure_on_cluster
from workbench.indicators.kubernetes.job_manifests import build_manifests, build_object_name, cluster_options
from workbench.indicators.kubernetes.job_submission import connect_cluster, delete_objects, submit_objects
from workbench.indicators.kubernetes.result_collection import collect_results
from workbench.indicators.measurement.rounds import Judge
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Session
from workbench.kubernetes.client import Cluster
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster

pytest.importorskip("kubernetes.client", reason="the Kubernetes client is not installed")

CASES = [Case.from_parameters(Good)]
CONFIG = session_config(rounds=(2,), seed=7, memory_bytes=1 << 30)


class Heard(SessionWatcher):
    """What a watcher was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.runs: list[tuple[str, str, str]] = []
        self.rounds: list[int] = []

    def report_run(self, arm: str, case: str, status: str) -> None:
        self.runs.append((arm, case, status))

    def report_round(self, number: int, most: int, verdicts: Any) -> None:
        self.rounds.append(number)

    def report_note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "session"
    planned(made, CASES)
    return made


@pytest.fixture
def plane(logs: list[bytes]) -> Plane:
    return Plane(log_of=lambda number: logs[number])


@pytest.fixture
def cluster(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Server(plane) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
        yield connect_cluster(None, None, "default")


def measured(folder: Path, cluster: Cluster, **more: Any) -> Session:
    return measure_on_cluster(folder, CONFIG, STACKS, CASES, cluster, poll_s=0.0, **more)


def failed(message: str = "", **status: Any) -> Object:
    return {"phase": "Failed", "message": message, **status}


def test_all_rounds_are_made_collected_and_tidied_up(folder: Path, plane: Plane, cluster: Cluster) -> None:
    heard = Heard()
    session = measured(folder, cluster, watcher=heard)
    assert (session.stop_reason, session.rounds_done, session.backend) == ("all rounds", 2, "kubernetes")
    assert len(list(archive.read_results(folder, session))) == 6
    assert [status for _, _, status in heard.runs] == ["ok"] * 6
    assert heard.rounds == [1, 2]
    assert "cluster: context here, namespace default" in heard.notes
    assert session.hardware.accelerators == ("Fake-GPU",)
    assert plane.objects == {}
    assert NODE not in (folder / archive.SESSION_FILE).read_text()


def test_the_server_checks_everything_before_anything_is_made(folder: Path, plane: Plane, cluster: Cluster) -> None:
    measured(folder, cluster, keep=True)
    assert {kind for kind, _ in plane.objects} == {"ConfigMap", "Secret", "NetworkPolicy", "Job"}, "kept when asked for"
    posts = [(kind, dry) for method, kind, dry in plane.asked if method == "POST"]
    assert posts[:4] == [("ConfigMap", True), ("Secret", True), ("NetworkPolicy", True), ("Job", True)]
    assert posts[4:] == [("Job", False), ("ConfigMap", False), ("Secret", False), ("NetworkPolicy", False)]
    # The Job begins when all is there, and owns the rest.
    job, *others = plane.submitted
    assert job["spec"]["suspend"] is True
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    assert [one["metadata"]["ownerReferences"] for one in others] == [[owner]] * 3
    made = [place for place, (method, _, dry) in enumerate(plane.asked) if method == "POST" and not dry]
    assert next(place for place, (method, _, _) in enumerate(plane.asked) if method == "PATCH") > max(made)


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (422, "spec.template: Forbidden: violates PodSecurity", "violates PodSecurity"),
        (403, "jobs.batch is forbidden: User cannot create", "does not allow it"),
        (404, 'namespaces "default" not found', "kubectl create namespace default"),
    ],
)
def test_what_the_server_refuses_is_told_and_nothing_is_made(
    folder: Path, plane: Plane, cluster: Cluster, status: int, message: str, told: str
) -> None:
    plane.refuse = lambda method, kind, dry: (status, message) if kind == "Job" and dry else None
    with pytest.raises(ConfigError, match=re.escape(told)):
        measured(folder, cluster)
    assert plane.submitted == []


def test_what_was_made_is_deleted_when_the_rest_cannot_be(folder: Path, plane: Plane, cluster: Cluster) -> None:
    plane.refuse = lambda method, kind, dry: (
        (403, "quota") if (method, kind, dry) == ("POST", "NetworkPolicy", False) else None
    )
    with pytest.raises(ConfigError, match="does not allow"):
        measured(folder, cluster)
    assert [one["kind"] for one in plane.submitted] == ["Job", "ConfigMap", "Secret"]
    assert plane.objects == {}


def test_a_session_that_is_there_already_is_left_alone(folder: Path, plane: Plane, cluster: Cluster) -> None:
    session = archive.read_session(folder)
    made = submit_objects(cluster, build_manifests(session, STACKS, CASES, cluster_options(), key=KEY))
    before = dict(plane.objects)
    with pytest.raises(ConfigError, match="already exists on the cluster"):
        measured(folder, cluster)
    assert plane.objects == before
    # Only what was made here is deleted: somebody deleted the Secret and made another one of its name.
    name = build_object_name(session.session_id)
    plane.objects["Secret", name]["metadata"]["uid"] = "somebody-elses"
    assert delete_objects(cluster, made) == []
    assert list(plane.objects) == [("Secret", name)]


def test_ctrl_c_deletes_what_was_made_and_the_next_call_makes_what_is_missing(
    folder: Path, plane: Plane, cluster: Cluster, logs: list[bytes]
) -> None:
    class Impatient(Heard):
        def report_round(self, number: int, most: int, verdicts: Any) -> None:
            raise KeyboardInterrupt

    session = measured(folder, cluster, watcher=Impatient())
    assert (session.stop_reason, session.rounds_done) == ("interrupted", 1)
    assert plane.objects == {}
    plane.log_of = lambda _: logs[1]
    session = measured(folder, cluster)
    assert (session.stop_reason, session.rounds_done) == ("all rounds", 2)
    job = [one for one in plane.submitted if one["kind"] == "Job"][-1]
    assert job["spec"]["completions"] == 1
    assert len(list(archive.read_results(folder, session))) == 6
    # Nothing is missing: nothing is submitted.
    count = len(plane.submitted)
    measured(folder, cluster)
    assert len(plane.submitted) == count


def test_a_pod_that_was_evicted_costs_its_round_and_says_why(folder: Path, plane: Plane, cluster: Cluster) -> None:
    evicted = failed(reason="Evicted", message=f"low on memory at {NODE}")
    plane.status_of = lambda number: evicted if number == 0 else succeeded()
    session = measured(folder, cluster)
    assert session.stop_reason == "all rounds were tried, some failed"
    told = [note for note in session.notes if "round 0" in note]
    why = "evicted because the node ran out of a resource: low on memory at (node)"
    assert told == [f"cluster: round 0: 3 of 3 runs are not there; {why}"]
    assert {run for _, run, _ in archive.read_results(folder, session)} == {1}


def test_a_round_that_ran_out_of_memory_keeps_the_runs_before(
    folder: Path, plane: Plane, cluster: Cluster, logs: list[bytes]
) -> None:
    killed = {"name": "measure", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    plane.status_of = lambda number: failed(containerStatuses=[killed]) if number == 1 else succeeded()
    # The last run of the round had begun, and no more.
    lines = logs[1].splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if line.startswith(b"@workbench begin 1.5."))
    plane.log_of = lambda number: b"".join(lines[: end + 1]) if number == 1 else logs[number]
    session = measured(folder, cluster)
    (note,) = [note for note in session.notes if "round 1" in note]
    assert "1 of 3 runs are not there; out of memory" in note
    assert note.endswith(", Good was begun")
    assert len(list(archive.read_results(folder, session))) == 5


def installing(message: str) -> Callable[[int], Object]:
    ended = {"name": "install", "state": {"terminated": {"exitCode": 1, "message": message}}}
    return lambda _: failed(initContainerStatuses=[ended])


def pulling(_: int) -> Object:
    waits = {"name": "install", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}
    return {"phase": "Pending", "initContainerStatuses": [waits]}


@pytest.mark.parametrize(
    ("status_of", "told"),
    [
        (installing("workbench: six cannot be installed: no wheel"), "six cannot be installed: no wheel"),
        (pulling, "the image cannot be pulled: no such tag"),
    ],
)
def test_pods_that_can_never_measure_end_the_session_at_once(
    folder: Path, plane: Plane, cluster: Cluster, status_of: Callable[[int], Object], told: str
) -> None:
    plane.status_of = status_of
    with pytest.raises(RunFailedError, match=re.escape(told)):
        measured(folder, cluster)
    assert plane.objects == {}


@pytest.mark.parametrize("trouble", [installing("workbench: six cannot be installed: 503"), pulling])
def test_a_trouble_that_passes_costs_a_round_once_others_were_measured(
    folder: Path, plane: Plane, cluster: Cluster, trouble: Callable[[int], Object]
) -> None:
    looks = iter(range(100))
    plane.status_of = lambda number: trouble(number) if number == 1 and next(looks) < 9 else succeeded()
    session = measured(folder, cluster)
    assert session.stop_reason in ("all rounds", "all rounds were tried, some failed")
    told = [note for note in session.notes if "round 1" in note]
    if trouble is pulling:
        assert (told, session.rounds_done) == ([], 2)
    else:
        assert told == [
            "cluster: round 1: 3 of 3 runs are not there; "
            "the stacks could not be installed: six cannot be installed: 503"
        ]
        assert session.rounds_done == 1


def test_a_pod_that_no_node_takes_is_told_once_and_waited_for(folder: Path, plane: Plane, cluster: Cluster) -> None:
    looks = iter(range(100))
    waits = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}

    def status_of(_: int) -> Object:
        return {"phase": "Pending", "conditions": [waits]} if next(looks) < 8 else succeeded()

    plane.status_of = status_of
    heard = Heard()
    assert measured(folder, cluster, watcher=heard).rounds_done == 2
    assert heard.notes.count("waiting: no node can run the pod: 0/2 nodes") == 1


def test_a_control_plane_that_is_away_for_a_while_is_waited_for(folder: Path, plane: Plane, cluster: Cluster) -> None:
    counts: Counter[str] = Counter()

    def refuse(method: str, kind: str, dry: bool) -> tuple[int, str] | None:
        if method != "GET":
            return None
        counts[kind] += 1
        # The first and second look at the Job; of what is asked of pods, their first list and their first log.
        return (503, "leader lost") if (kind, counts[kind]) in away else None

    away = {("Job", 1), ("Job", 2), ("pods", 1), ("pods", 3)}
    plane.refuse = refuse
    session = measured(folder, cluster)
    assert (session.rounds_done, session.stop_reason) == (2, "all rounds")
    assert len(list(archive.read_results(folder, session))) == 6
    assert counts["pods"] > 3


@pytest.mark.parametrize(("status", "told"), [(503, "the cluster failed"), (404, "no longer exists on the cluster")])
def test_a_control_plane_that_stays_away_and_a_job_that_is_gone_end_it(
    folder: Path, plane: Plane, cluster: Cluster, status: int, told: str
) -> None:
    plane.refuse = lambda method, kind, dry: (
        (status, "gone") if method == "GET" and (status == 503 or kind == "Job") else None
    )
    with pytest.raises(RunFailedError, match=told):
        measured(folder, cluster)
    assert status == 404 or plane.objects == {}


def test_it_stops_at_a_look_that_decides(tmp_path: Path, plane: Plane, cluster: Cluster, logs: list[bytes]) -> None:
    planned(tmp_path / "looks", CASES, rounds=(1, 2))
    asked: list[Path] = []

    def decided(folder: Path) -> bool:
        asked.append(folder)
        return True

    config = session_config(rounds=(1, 2), seed=7, memory_bytes=1 << 30)
    session = measure_on_cluster(
        tmp_path / "looks", config, STACKS, CASES, cluster, judge=Judge(decided=decided), poll_s=0.0, keep=True
    )
    assert (session.stop_reason, session.rounds_done, len(asked)) == ("decided", 1, 1)
    assert plane.objects == {}


def test_a_cluster_that_is_not_this_machine_must_be_confirmed(cluster: Cluster) -> None:
    assert cluster.is_local
    for given in (None, "here", "fa"):
        with pytest.raises(ConfigError, match="--confirm-context far"):
            connect_cluster("far", given, "default")
    assert not connect_cluster("far", "far", "default").is_local


def test_a_cluster_that_does_not_answer_is_told_and_without_a_kubeconfig_what_can_be_done(
    folder: Path, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(plane) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
        away = connect_cluster(None, None, "default")
    with pytest.raises(RunFailedError, match="cannot reach the cluster"):
        measured(folder, away)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=re.escape("apply manifests.yaml")):
        connect_cluster(None, None, "default")


def told(capsys: pytest.CaptureFixture[str], *options: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["indicators", "collect", *map(str, options)])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def own(tmp_path: Path) -> str:
    """The indicator as a user has it: in a file of its own."""
    head = "from typing import ClassVar\nfrom workbench.indicators.contract import *\n"
    source = inspect.getsource(Good).replace("= GOOD", f"= {Good.script!r}")
    (tmp_path / "own.py").write_text(head + source)
    return f"{tmp_path / 'own.py'}:Good"


def test_the_command_collects_files_and_rounds_that_were_not_needed_are_not_missing(
    folder: Path, logs: list[bytes], tmp_path: Path, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{number}.log" for number in range(2)]
    for path, log in zip(files, logs, strict=True):
        path.write_bytes(log)
    code, out, err = told(capsys, folder, files[0], "--indicator", own)
    assert (code, err) == (1, "")
    assert out == "      3  runs collected\nrounds without any run: 1\n"
    archive.write_session(folder, archive.read_session(folder).model_copy(update={"stop_reason": "decided"}))
    assert told(capsys, folder, files[0], "--indicator", own)[0] == 0
    code, out, _ = told(capsys, folder, *files, "--indicator", own, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["collected"], found["present"], found["statuses"], found["missing"]) == (3, 3, {"ok": 3}, {})


def test_the_command_collects_from_the_cluster(
    folder: Path, cluster: Cluster, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = archive.read_session(folder)
    submit_objects(cluster, build_manifests(session, STACKS, CASES, cluster_options(), key=KEY))
    cluster.list_pods("")
    code, out, err = told(capsys, folder, "--indicator", own)
    assert (code, out) == (0, "      6  runs collected\n")
    assert err == "2 finished pod(s); context here, namespace default\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--indicator FILE.py:Good"),
        (("nothing.log", "--indicator", "OWN"), "nothing.log"),
        (("--indicator", "OWN", "--context", "near"), "allowed: here, far"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_the_command_says_what_is_wrong(
    folder: Path, own: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], named: str
) -> None:
    code, out, err = told(capsys, folder, *(own if one == "OWN" else one for one in options))
    assert (code, out) == (2, "")
    assert named in err


def test_a_pod_whose_log_is_gone_does_not_cost_the_others_theirs(
    folder: Path, plane: Plane, cluster: Cluster, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = archive.read_session(folder)
    submit_objects(cluster, build_manifests(session, STACKS, CASES, cluster_options(), key=KEY))
    cluster.list_pods("")
    kept = plane.log_of
    plane.log_of = lambda number: kept(number) if number else None
    code, out, _ = told(capsys, folder, "--indicator", own)
    assert (code, out) == (1, "      3  runs collected\nrounds without any run: 0\n")


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("users: [{token: swordfish\n", (), "not YAML, line 2"),
        (None, (), "which cluster?"),
        (None, ("--context", "here"), "0 finished pod(s)"),
    ],
    ids=["broken YAML", "no current context", "no current context, but one is named"],
)
def test_a_kubeconfig_that_is_broken_or_names_no_current_context(
    text: str | None,
    options: tuple[str, ...],
    named: str,
    folder: Path,
    cluster: Cluster,
    own: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace("current-context: here\n", "") if text is None else text)
    code, _, err = told(capsys, folder, "--indicator", own, *options)
    assert code == (1 if options else 2)
    assert named in err
    assert "swordfish" not in err


@pytest.mark.cluster
def test_a_real_control_plane_takes_every_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_cluster: LocalCluster
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(local_cluster.kubeconfig))
    session = planned(tmp_path, CASES)
    real = connect_cluster(local_cluster.context, None, "default")
    made = submit_objects(real, build_manifests(session, STACKS, CASES, cluster_options(), key=KEY))
    try:
        assert sorted(one.kind for one in made) == ["ConfigMap", "Job", "NetworkPolicy", "Secret"]
        job = real.get_job(build_object_name(session.session_id))
        assert job["spec"]["completionMode"] == "Indexed"
        assert job["spec"]["backoffLimitPerIndex"] == 0
        assert job["spec"]["suspend"] is False
    finally:
        assert delete_objects(real, made) == []


def test_a_log_made_anew_for_a_part_of_the_rounds_fits_the_same_session(tmp_path: Path) -> None:
    session = planned(tmp_path, CASES, rounds=(4,))
    log = log_of(Pod(tmp_path / "pod", session, CASES, rounds=[3, 1]).round(0))
    found = collect_results(tmp_path, CASES, [[log]], key=KEY)
    assert ({slot.round for slot, _ in found.new}, found.absent) == ({3}, [0, 1, 2])
    inspection = archive.inspection_id(session.session_id, "control", "Good")
    assert archive.result_path(tmp_path, inspection, 3).exists()
