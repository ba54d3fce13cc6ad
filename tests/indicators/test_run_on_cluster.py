"""`run --backend manifests|kubernetes`: what is written, and what is refused before anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from workbench.cli import app
from workbench.indicators.stacks.stack_sets import Package, StackSet, build_stack


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """Two stacks that nobody installs."""
    made = [
        build_stack(
            [Package(name="numpy", version=version, hashes=(f"sha256:{digit * 64}",))],
            python="3.11.7",
            platform="linux_x86_64",
            name=f"numpy {version}",
        )
        for version, digit in (("2.2.6", "a"), ("2.4.6", "b"))
    ]
    path = tmp_path / "stacks.json"
    StackSet(
        requirements=(),
        free=(),
        decision="grid",
        python="3.11.7",
        platform="linux_x86_64",
        uv_version="0.13.8",
        stacks=tuple(made),
    ).write(path)
    return path


def run(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(["indicators", "run", *map(str, words)])
    return int(ended.value.code or 0)


def test_manifests_are_written_and_the_commands_to_go_on_are_printed(
    stacks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--stacks", stacks, "--indicator", "sort", "--backend", "manifests", "--out", tmp_path / "out"]
    assert run(*words, "--cluster", "gpus=1", "--rounds", "10") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("kubectl apply -f ")
    assert told[-1].startswith("workbench indicators collect ")
    (path,) = (tmp_path / "out").rglob("manifests.yaml")
    (job,) = [one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == "Job"]
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (10, "Indexed")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


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


def test_a_cluster_needs_a_kubeconfig(
    stacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    words = ["--stacks", stacks, "--indicator", "sort", "--out", tmp_path / "out", "--backend", "kubernetes"]
    assert run(*words) == 2
    assert "kubeconfig" in capsys.readouterr().err
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


def test_manifests_in_json_are_one_document(stacks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--stacks", stacks, "--indicator", "sort", "--backend", "manifests", "--out", tmp_path / "out"]
    assert run(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (Path(found["folder"]) / "kubernetes" / "manifests.yaml").is_file()
    assert found["commands"][0].startswith("kubectl apply -f ")
    assert "--ignore-errors" in next(one for one in found["commands"] if one.startswith("kubectl logs"))
