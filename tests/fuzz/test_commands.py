"""The commands themselves on damaged and hostile files: an exit code that says what it was, and never a traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from tests.fuzz.fuzzing import fuzz, scratch
from tests.fuzz.mutations import damaged, json_documents
from tests.fuzz.test_eventlogs import MADE, PACKED
from tests.fuzz.test_scaletest import TEXTS
from tests.fuzz.test_sizing import CALC, YAMLS
from tests.fuzz.test_speedup import FACTORS, MODEL
from tests.lore.small_dump import write_dump
from workbench.cli import app

pytestmark = pytest.mark.slow

# What moves a cursor, names a window, opens a link or turns the direction of writing.
STEERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
STEERING = "\x1b]0;pwned\x07\x1b[31m\u202egnp"
FORMULA = "=cmd|' /C calc'!A0"


class Ran:
    """A command in this process: its exit code and what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: object) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app.main(list(map(str, words)))
        self.code = ended.value.code or 0
        self.out, self.err = capsys.readouterr()
        said = self.out + self.err
        assert self.code in (0, 1, 2), f"{words[:3]}: {self.code}: {said[-1_500:]}"
        assert "Traceback" not in said
        assert not STEERS.search(said), f"{words[:3]} says {STEERS.search(said)!r}"
        assert self.code != 2 or self.err.strip(), "a refusal without words"


Call = tuple[object, ...]
CORPUS: dict[str, tuple[list[bytes], Callable[[Path, Path], Call]]] = {
    "log": (list(PACKED.values()), lambda path, out: ("eventlog", "facts", path, "--out", out, "--csv")),
    "profile": ([MADE], lambda path, out: ("speedup", "profile", path)),
    "profile.csv": ([MADE], lambda path, out: ("speedup", "profile", path, "--csv", "--local_folder", out)),
    "factors.csv": ([FACTORS], lambda path, out: ("speedup", "export", path, "--output", out / "a.csv")),
    "model.json": (
        [json.dumps(MODEL).encode()],
        lambda path, out: ("speedup", "export", path, "--output", out / "a.csv"),
    ),
    "calc_runner_output.json": (
        [json.dumps(CALC).encode()],
        lambda path, out: ("sizing", "import", path, "--out", out),
    ),
    "scenario.yaml": ([*TEXTS, *YAMLS], lambda path, out: ("scaletest", "plan", path)),
    "stacks.json": (
        [b'{"format_version": 1, "stacks": []}'],
        lambda path, out: ("indicators", "import", path, "--out", out),
    ),
    "parameters.yaml": (YAMLS, lambda path, out: ("run", "speedup", "-f", path, "--parameters")),
    "run.json": ([b'{"format_version": 1}'], lambda path, out: ("runs", "show", path.parent)),
}


@fuzz(60, name=st.sampled_from(sorted(CORPUS)), data=st.data())
def test_a_command_on_a_damaged_file_ends_well_or_says_why_not(
    name: str, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    samples, command = CORPUS[name]
    with scratch() as place:
        path = place / "given" / name
        path.parent.mkdir()
        path.write_bytes(bytes(data.draw(damaged(samples))))
        Ran(capsys, *command(path, place / "out"))


@fuzz(20, content=json_documents([{"a": 1}]), name=st.sampled_from(sorted(CORPUS)))
def test_a_command_on_json_of_no_kind_says_why_not(
    content: bytes, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with scratch() as place:
        path = place / name
        path.write_bytes(content)
        Ran(capsys, *CORPUS[name][1](path, place / "out"))


def hostile_log(path: Path) -> Path:
    """Names that steer a terminal, and that a spreadsheet would run."""
    start = made.sql_start(0, made.plan(FORMULA + STEERING, metrics={7: FORMULA})) | {"description": FORMULA}
    events = [made.log_start(), made.application_start(user=STEERING, name=FORMULA + STEERING), start]
    events += [made.job_start(0, [0], {"spark.sql.execution.id": "0"}), made.stage_submitted(0, name=STEERING)]
    events += [made.stage_completed(0, name=FORMULA, failure=STEERING), made.job_end(0, failure=STEERING)]
    path.write_bytes(made.dump(*events, made.sql_end(0, error=STEERING), made.application_end()))
    return path


def test_texts_of_a_log_steer_no_terminal_and_start_no_formula(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = hostile_log(tmp_path / "log"), tmp_path / "out"
    assert Ran(capsys, "eventlog", "facts", log, "--out", out, "--csv").code in (0, 1)
    Ran(capsys, "speedup", "profile", log)
    cells = [cell for path in out.rglob("*.csv") for cell in re.split(r'[,\n]"?', path.read_text())]
    assert any(cell.startswith("'=cmd") for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "@"))]


def test_names_of_files_and_dumps_steer_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("eventlog", "facts", tmp_path / STEERING, "--out", tmp_path / "o"),
        ("speedup", "profile", tmp_path / STEERING),
        ("scaletest", "plan", tmp_path / STEERING),
        ("runs", "show", STEERING, "--out", tmp_path),
        ("run", STEERING),
        ("sizing", "import", tmp_path / STEERING),
        ("indicators", "import", tmp_path / STEERING, "--out", tmp_path / "o"),
        ("lore", "inspect", tmp_path / STEERING),
    ):
        assert Ran(capsys, *words).code == 2
    header = tmp_path / "factors.csv"
    header.write_text(f"{STEERING},Score\nFilterExec,2\n")
    assert Ran(capsys, "speedup", "export", header, "--output", tmp_path / "a.csv").code == 2
    Ran(capsys, "lore", "inspect", write_dump(tmp_path / "loreId-3", operator_text=STEERING, tree=STEERING))


@pytest.mark.parametrize(
    "path", sorted((SAMPLES / "eventlogs" / "small").glob("three_queries.*")), ids=lambda path: path.suffix
)
def test_a_sample_cut_in_the_middle_is_read_as_far_as_it_goes(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / path.name
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert Ran(capsys, "speedup", "profile", cut).code in (1, 2)
