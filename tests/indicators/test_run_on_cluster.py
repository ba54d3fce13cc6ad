"""`run --backend manifests|kubernetes`: what is written, and what is refused before anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.indicators.stacks.making import lock, stack_set
from workbench.cli import app


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """Two stacks that nobody installs."""
    made = [lock({"numpy": version}, f"numpy {version}") for version in ("2.2.6", "2.4.6")]
    return stack_set(made).write(tmp_path / "stacks.json")


def run(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(["indicators", "run", *map(str, words)])
    return int(ended.value.code or 0)


def test_manifests_are_written_and_the_commands_to_go_on_are_printed(
    stacks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--stacks", stacks, "--indicator", "sort", "--backend", "manifests"]
    assert run(*words, "--out", tmp_path / "out", "--cluster", "gpus=1", "--rounds", "10") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("kubectl apply -f ")
    assert told[-1].startswith("workbench indicators collect ")
    (path,) = (tmp_path / "out").rglob("manifests.yaml")
    (job,) = [one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == "Job"]
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (10, "Indexed")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert run(*words, "--out", tmp_path / "more", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (Path(found["folder"]) / "kubernetes" / "manifests.yaml").is_file()
    assert "--ignore-errors" in next(one for one in found["commands"] if one.startswith("kubectl logs"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--backend", "podman"], "no such backend"),
        (["--cluster", "gpus=1"], "for a cluster only"),
        (["--backend", "manifests", "--cluster", "speed=1"], "speed"),
        (["--backend", "manifests", "--network"], "not on a cluster"),
        (["--backend", "manifests", "--context", "near"], "neither reaches a cluster nor resumes"),
        (["--backend", "manifests", "--confirm-context", "near"], "neither reaches a cluster nor resumes"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    stacks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    assert run("--stacks", stacks, "--indicator", "sort", "--out", tmp_path / "out", *more) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--backend", "manifests"], "where: --backend manifests"),
        (["--backend", "kubernetes", "--cluster", "gpus=1"], "where: --resume"),
    ],
)
def test_what_does_not_fit_a_session_that_goes_on_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    assert run("--resume", tmp_path, *more) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_needs_a_kubeconfig(
    stacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    words = ["--stacks", stacks, "--indicator", "sort", "--out", tmp_path / "out", "--backend", "kubernetes"]
    assert run(*words) == 2
    assert "kubeconfig" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
