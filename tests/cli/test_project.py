"""`workbench init`: what it lays out, what it leaves alone, and whose notebooks run where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from workbench.cli import app, project
from workbench.core import files
from workbench.core.files import PROJECT_FILE, SHIPPED
from workbench.execution import discovery, parameters
from workbench.runs import threshold_gate

NUMBERED = sorted(path.stem for path in (SHIPPED / "notebooks").glob("[0-9]*.ipynb"))


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main([str(one) for one in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(files.OUT_VARIABLE, raising=False)
    return tmp_path


def test_a_project_has_what_its_notebooks_read(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("init", "demo") == 0
    said = capsys.readouterr().out
    assert "next: cd demo, then workbench run start_here" in said
    assert "thresholds.yaml" in said
    demo = empty / "demo"
    assert sorted(path.stem for path in (demo / "notebooks").glob("[0-9]*.ipynb")) == NUMBERED
    assert {path.name for path in demo.iterdir()} >= {
        "Makefile",
        "README.md",
        "parameters.yaml",
        "thresholds.yaml",
        ".gitignore",
        PROJECT_FILE,
    }
    for plan in discovery.plan_runs(sorted((demo / "notebooks").glob("[0-9]*.ipynb"))):
        for item in parameters.read_parameters(plan.notebook):
            for value in item.default if isinstance(item.default, list) else [item.default]:
                if isinstance(value, str) and value.startswith("../"):
                    assert (demo / "notebooks" / value).exists(), (plan.area, value)


def test_what_is_there_stays_and_what_lacks_comes(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("init", "demo", "--no-samples") == 0
    demo = empty / "demo"
    (demo / "parameters.yaml").write_text("sizing: {seed: 3}\n")
    (demo / "notebooks" / "01_speedup.ipynb").unlink()
    assert not (demo / "data").exists()
    assert call("init", "demo", "--no-samples") == 0
    assert "demo: 1 files written" in capsys.readouterr().out.splitlines()[-2]
    assert (demo / "parameters.yaml").read_text() == "sizing: {seed: 3}\n"


def test_names_mean_the_projects_notebooks_in_it_and_below_and_the_shipped_ones_elsewhere(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("init", "demo", "--no-samples")
    own = empty / "demo" / "notebooks"
    assert discovery.find_notebook_folder() == SHIPPED / "notebooks"
    monkeypatch.chdir(own)
    assert discovery.resolve_notebooks(["sizing"]) == [own / "03_sizing.ipynb"]
    assert files.default_out() == empty / "demo" / "data" / "runs"
    monkeypatch.chdir(empty)
    # Notebooks that merely lie there, as in a repository of somebody else, do not run by name.
    (empty / "notebooks").symlink_to(own)
    assert discovery.resolve_notebooks(["sizing"]) == [SHIPPED / "notebooks" / "03_sizing.ipynb"]


def test_the_parameters_file_names_every_setting_and_works_uncommented(empty: Path) -> None:
    text = project.format_parameters_file()
    assert yaml.safe_load(text) is None
    lines = [line.removeprefix("# ") for line in text.splitlines()[2:]]
    values = yaml.safe_load("\n".join(lines))
    assert sorted(values) == sorted(discovery.area_from_path(name) for name in NUMBERED)
    plans = discovery.plan_runs([SHIPPED / "notebooks" / f"{name}.ipynb" for name in NUMBERED], values)
    for plan in plans:
        assert plan.resolved.config == values[plan.area]


def test_the_thresholds_file_is_valid_as_it_is_and_uncommented(empty: Path) -> None:
    call("init", "demo", "--no-samples")
    areas = sorted(discovery.area_from_path(name) for name in NUMBERED)
    path = empty / "demo" / "thresholds.yaml"
    assert [*threshold_gate.load_gate(path, areas, areas, empty).rules.areas] == ["start_here"]
    text = path.read_text().partition("\n\n")
    path.write_text(text[0] + "\n" + "\n".join(re.findall(r"^# ((?: |\w+:$).*|\w+:)$", text[2], re.MULTILINE)))
    assert [*threshold_gate.load_gate(path, areas, areas, empty).rules.areas] == ["start_here", "profile", "speedup"]


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda here: (here / "demo").write_text("a file"), "cannot write the project"),
        (
            lambda here: (here / "demo").mkdir() or (here / "demo" / "notebooks").write_text(""),
            "cannot write the project",
        ),
        (lambda here: (here / "demo").symlink_to(SHIPPED), "this folder is the checkout itself"),
    ],
)
def test_where_it_cannot_be_laid_out_it_says_why(
    empty: Path, capsys: pytest.CaptureFixture[str], prepare: Callable[[Path], object], said: str
) -> None:
    prepare(empty)
    assert call("init", "demo") == 2
    assert said in capsys.readouterr().err
