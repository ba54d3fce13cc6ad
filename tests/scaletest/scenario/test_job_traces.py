"""Traces of other clusters: what is read of each format, what is left out and counted, and the scenario of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.scenario.scenario_file import hash_scenario, load_scenario, parse_scenario
from workbench.scaletest.scenario.trace_scenario import ReplayOptions, read_job_trace, write_trace_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan, find_peaks, read_plan

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def write_openb(folder: Path) -> Path:
    rows = [
        "a,4000,1024,8,1000,,LS,Succeeded,100,460,160",  # 8 GPUs for 300 s after a wait of 60
        "b,4000,1024,1,500,T4,BE,Running,50,80,50",  # half a GPU for 30 s
        "c,4000,1024,0,0,,LS,Running,0,9,0",  # no GPU
        "d,4000,1024,1,1000,,LS,Pending,0,9,",  # never started
        "e,4000,1024,1,1000,,LS,Failed,5,7,8",  # ends before it begins
    ]
    path = folder / "pods.csv"
    path.write_text(OPENB + "\n".join(rows) + "\n")
    return path


def write_pai(folder: Path, *, names: bool) -> Path:
    jobs = ["j1,i1,u,Terminated,10,400", "j2,i2,u,Running,20,", "j3,i3,u,Failed,30,90", "j4,i4,u,Terminated,40,90"]
    tasks = [
        "j1,ps,1.0,Terminated,12,390,600,29.3,,",
        "j1,worker,4.0,Terminated,15,395,600,29.3,200,V100",
        "j2,worker,1.0,Running,25,,600,29.3,100,T4",
        "j3,worker,2.0,Failed,35,85,600,29.3,50,MISC",
        "j4,a,1.0,Terminated,41,80,600,29.3,100,T4",
        "j4,b,1.0,Terminated,41,80,600,29.3,25,T4",
    ]
    head = {
        "pai_job_table.csv": "job_name,inst_id,user,status,start_time,end_time",
        "pai_task_table.csv": (
            "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
        ),
    }
    for (name, line), rows in zip(head.items(), (jobs, tasks), strict=True):
        (folder / name).write_text("\n".join([line, *rows] if names else rows) + "\n")
    return folder


def write_philly(folder: Path) -> Path:
    def attempt(begin: str | None, end: str | None, *servers: int) -> dict[str, Any]:
        detail = [{"ip": f"m{at}", "gpus": [f"gpu{one}" for one in range(n)]} for at, n in enumerate(servers)]
        return {"start_time": begin, "end_time": end, "detail": detail}

    def job(submitted: str, *attempts: tuple[str, str | None, *tuple[int, ...]]) -> dict[str, Any]:
        day = "2017-10-07 "
        made = [attempt(day + begin, end and day + end, *servers) for begin, end, *servers in attempts]
        return {"submitted_time": day + submitted, "attempts": made}

    jobs = [
        job("01:00:00", ("01:01:00", "01:02:00", 8, 8), ("01:03:00", "01:13:00", 8, 8)),
        job("02:00:00"),
        job("03:00:00", ("03:00:05", None, 1)),
        job("04:00:00", ("04:00:05", "04:01:05", 8, 2)),
        job("00:30:00", ("00:30:10", "00:31:10", 1)),
    ]
    path = folder / "cluster_job_log"
    path.write_text(json.dumps(jobs))
    return path


def test_pods_of_alibaba_2023(tmp_path: Path) -> None:
    found = read_job_trace(write_openb(tmp_path))
    assert found.format == "openb"
    assert found.jobs.rows() == [(50.0, 30.0, 1, 0.5, 0.0), (100.0, 300.0, 1, 8.0, 60.0)]
    assert found.left_out == {"no GPU": 1, "never started": 1, "ends before it begins, or lasts no time": 1}
    assert found.n_read == 5


@pytest.mark.parametrize("names", [True, False])
def test_jobs_of_pai_with_their_tasks(tmp_path: Path, names: bool) -> None:
    found = read_job_trace(write_pai(tmp_path, names=names))
    assert found.format == "pai"
    # Without the parameter server, which has no GPU: from the first worker's start to the last one's end.
    assert found.jobs.rows() == [(10.0, 380.0, 4, 2.0, 5.0), (30.0, 50.0, 2, 0.5, 5.0)]
    assert found.left_out == {"start or end is not known": 1, "its pods differ in GPUs": 1}
    assert read_job_trace(tmp_path / "pai_task_table.csv").jobs.equals(found.jobs)


def test_jobs_of_philly_with_all_attempts(tmp_path: Path) -> None:
    found = read_job_trace(write_philly(tmp_path))
    assert found.format == "philly"
    assert [row[1:] for row in found.jobs.rows()] == [(60.0, 1, 1.0, 10.0), (660.0, 2, 8.0, 60.0)]
    assert found.jobs["submit_s"][1] - found.jobs["submit_s"][0] == 1800
    assert found.left_out == {"never started": 1, "start or end is not known": 1, "its pods differ in GPUs": 1}


def test_a_plain_table(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_s,run_s,gpus_per_pod,pods\n20,10,1,1\n5,30,4,2\n6,,1,1\n")
    found = read_job_trace(path)
    assert found.jobs.rows() == [(5.0, 30.0, 2, 4.0, None), (20.0, 10.0, 1, 1.0, None)]
    assert found.left_out == {"start or end is not known": 1}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a trace of GPU jobs"),
        ("a,b\n1,2\n", "not a trace of GPU jobs"),
        ('[{"x": 1}]', "not a job log of Philly"),
        ("[1", "not JSON"),
        ('[{"submitted_time": "x", "attempts": []}]', "not a job of Philly"),
        ("submit_s,run_s,gpus_per_pod\n1,two,1\n", "not a number"),
        ("submit_s,run_s,gpus_per_pod\n1,inf,1\n", "not a number"),
        ("submit_s,run_s,gpus_per_pod,pods\n1,2,1,1.5\n", "whole numbers"),
        ("submit_s,run_s,gpus_per_pod\n1,2,1,4\n", "not a CSV file"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(InputError, match=what):
        read_job_trace(path)


def test_a_packed_trace_is_to_be_unpacked_and_a_mark_at_the_begin_is_no_name(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(b"submit_s,run_s,gpus_per_pod\n1,2,1\n"))
    with pytest.raises(InputError, match="the trace is packed"):
        read_job_trace(path)
    path.write_bytes(b"\xef\xbb\xbfsubmit_s,run_s,gpus_per_pod\r\n1,2,1\r\n")
    assert read_job_trace(path).jobs.height == 1
    with pytest.raises(InputError, match="cannot read the trace"):
        read_job_trace(tmp_path / "none")


def write_plain(folder: Path, rows: list[tuple[float, float, float, int]]) -> Path:
    path = folder / "plain.csv"
    pl.DataFrame(rows, schema=["submit_s", "run_s", "gpus_per_pod", "pods"], orient="row").write_csv(path)
    return path


ROWS = [(1000.0, 600.0, 1.0, 1), (1060.0, 300.0, 0.5, 1), (1120.0, 900.0, 4.0, 3), (1300.0, 60.0, 1.0, 1)]


def test_a_replay_has_every_jobs_time_size_and_lifetime_compressed(tmp_path: Path) -> None:
    trace = read_job_trace(write_plain(tmp_path, ROWS))
    made = write_trace_scenario(trace, tmp_path / "replay", ReplayOptions(speed=60))
    plan = draw_plan(load_scenario(made.scenario))
    columns = ("due_s", "entry", "kind", "pods", "gpus_per_pod", "gang", "lifetime_s")
    assert plan.schedule.select(columns).rows() == [
        (0.0, "job-1-gpu", "Job", 1, 1.0, False, 10.0),
        (1.0, "job-1-gpu", "Job", 1, 1.0, False, 5.0),
        (2.0, "gang-3x4-gpus", "Pod", 3, 4.0, True, 15.0),
        (5.0, "job-1-gpu", "Job", 1, 1.0, False, 1.0),
    ]
    assert (made.n_jobs, made.n_rounded_up, made.n_cut) == (4, 1, 0)
    assert made.gpu_hours == pytest.approx((600 + 300 + 12 * 900 + 60) / 3600)
    # At 5 s all four run.
    assert made.peak_gpus == find_peaks(plan)["nvidia.com/gpu"] == 15
    assert made.mean_gpus == pytest.approx(made.gpu_hours * 3600 / 60 / made.ends_s)
    assert plan.replay_speed == 60
    # A plan that was written is the same again, whatever becomes of the files that it was made of.
    plan.write(tmp_path / "run")
    again = read_plan(tmp_path / "run")
    assert again.schedule.equals(plan.schedule)
    assert again.replay_speed == 60


def test_jobs_are_chosen_cut_and_brought_closer(tmp_path: Path) -> None:
    trace = read_job_trace(write_plain(tmp_path, ROWS))
    options = ReplayOptions(n=2, skip=1, speed=1, load=2, max_run_s=400)
    made = write_trace_scenario(trace, tmp_path / "replay", options)
    rows = draw_plan(load_scenario(made.scenario)).schedule.select("due_s", "lifetime_s").rows()
    assert rows == [(0.0, 300.0), (30.0, 400.0)]
    assert made.n_cut == 1
    with pytest.raises(InputError, match="a scenario is here already"):
        write_trace_scenario(trace, tmp_path / "replay", options)
    with pytest.raises(ConfigError, match="no job is left"):
        write_trace_scenario(trace, tmp_path / "other", ReplayOptions(skip=4))


def test_time_is_not_compressed_until_a_control_planes_delay_is_a_part_of_the_jobs(tmp_path: Path) -> None:
    trace = read_job_trace(write_plain(tmp_path, ROWS))
    with pytest.raises(ConfigError, match="compressed too far") as told:
        write_trace_scenario(trace, tmp_path / "replay", ReplayOptions(speed=500))
    assert told.value.facts["allowed"] == "up to 450"
    assert write_trace_scenario(trace, tmp_path / "replay", ReplayOptions(speed=450)).median_run_s == 1


BASE = """
name: replay
arrival: {{process: trace, times_s: [0, 1], {more}}}
workloads:
- {{name: small, kind: Job, lifetime: 1}}
- {{name: endless, kind: Pod}}
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("entries: [small, none]", "no workload is named 'none'"),
        ("entries: [small]", "1 values for 2"),
        ("lifetimes_s: [1, 2, 3]", "3 values for 2"),
        ("entries: [small, endless], lifetimes_s: [1, 2]", "endless has no lifetime"),
        ("lifetimes_s: [1, 0]", "greater than 0"),
    ],
)
def test_jobs_that_do_not_fit_their_scenario_are_refused(more: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_scenario(BASE.format(more=more))
    assert told in str(refused.value.facts["found"])


def test_a_scenario_without_jobs_keeps_the_hash_that_it_had() -> None:
    assert hash_scenario(parse_scenario(BASE.format(more="speed: 2"))).startswith(HASH_BEFORE)


# Of the version before traces had jobs.
HASH_BEFORE = "72b588e7e109ce78e14998a0022adb98"


def test_the_sample_is_what_its_script_makes(tmp_path: Path) -> None:
    sample = SAMPLES / "scaletest" / "traces"
    script = tmp_path / "make.py"
    script.write_text((sample / "make.py").read_text())
    subprocess.run([sys.executable, str(script)], check=True)
    assert (tmp_path / "jobs.csv").read_text() == (sample / "jobs.csv").read_text()
    made = write_trace_scenario(read_job_trace(sample / "jobs.csv"), tmp_path / "replay")
    assert (made.n_jobs, made.speed, made.left_out) == (500, 45.0, {})
    assert made.ends_s < 800
