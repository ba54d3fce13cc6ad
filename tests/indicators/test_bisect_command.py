"""`workbench indicators bisect`: the planted version is found, and what is not known is not told. Real runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.indicators.stacks.making import Made, local_index, own_settings
from workbench.cli.app import main
from workbench.indicators.measurement.version_bisection import PLAN, load_bisection

pytestmark = pytest.mark.timeout(1200)
Said = tuple[int, str, str]
Command = Callable[..., Said]
Index = Callable[[Sequence[Made]], None]
# Times are planted, a little apart from run to run, as all that is measured.
SCRIPT = """
import importlib.metadata, json, os
version = importlib.metadata.version("one")
factor = {factors}[version]
if factor is None:
    raise SystemExit("this version is broken")
print(json.dumps({{"name": "Planted", "@parameters": {{}},
                  "@result": {{"elapsed_ms": 50 * factor * (1 + os.getpid() % 7 / 1e4)}}}}))
"""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(["indicators", "bisect", *map(str, arguments)])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the file: compiling the standard library takes longer than a session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """A package index of the test's own, and caches of this file."""
    own_settings(monkeypatch, tmp_path, cache)
    return lambda wheels: monkeypatch.setenv("UV_DEFAULT_INDEX", local_index(tmp_path / "index", wheels).as_uri())


def plant(folder: Path, factors: dict[str, float | None]) -> Path:
    """A script that takes so many times as long with each version; null: it fails."""
    path = folder / "planted.py"
    path.write_text(SCRIPT.format(factors=repr(factors)))
    return path


def eight(begin: int, factor: float = 1.5) -> dict[str, float | None]:
    return {f"{number}.0": factor if number >= begin else 1.0 for number in range(1, 9)}


def folder_of(out: Path) -> Path:
    (found,) = out.glob("bisect-*")
    return found


@pytest.mark.slow  # 40 s; tests/indicators/analysis/test_version_search.py simulates the search
def test_the_version_is_found_with_what_else_changed(command: Command, index: Index, tmp_path: Path) -> None:
    index([Made("one", "1.0", ("aaa<2",)), Made("one", "2.0", ("aaa<2",)), Made("one", "2.1", yanked=True),
           Made("one", "3.0", ("aaa>=2",)), Made("aaa", "1.0"), Made("aaa", "2.0")])  # fmt: skip
    script = plant(tmp_path, {"1.0": 1.0, "2.0": 1.0, "3.0": 1.5})
    code, out, err = command("one", "1.0..3.0", "--script", script, "--rounds", 6, "--out", tmp_path / "out")
    assert code == 0, out + err
    assert out.startswith("one 3.0 made Planted 1.50x slower (95 % interval 1.")
    assert "than 2.0; 1 probe of 1 versions between." in out
    assert "aaa changed too: 1.0 -> 2.0; that may be the cause: fix it with --with aaa==1.0." in out
    assert "skipped, since they were yanked: 2.1" in out
    assert "next:" not in out
    folder = folder_of(tmp_path / "out")
    assert len(list(folder.glob("indicators/*/session.json"))) == 2
    # Read again, with nothing measured.
    code, again, err = command("--resume", folder, "--json")
    found = json.loads(again)
    assert (code, found["found"], found["version"], found["n_probes"]) == (0, True, "3.0", 1)
    assert "round" not in err
    assert found["answer"] == out.splitlines()[0]
    assert found["changed_packages"] == [{"name": "aaa", "before": "1.0", "after": "2.0"}]
    assert [one["state"] for one in found["versions"]] == ["oldest", "measured", "measured"]
    assert found["versions"][1]["verdict"] == "SAME"
    assert found["step"]["ratio"] == pytest.approx(1 / 1.5, rel=1e-3)
    assert (folder / found["versions"][2]["session"] / "session.json").is_file()


@pytest.mark.slow
def test_ends_that_are_the_same_leave_nothing_to_look_for(command: Command, index: Index, tmp_path: Path) -> None:
    index([Made("one", f"{number}.0") for number in range(1, 5)])
    script = plant(tmp_path, {"1.0": 1.0, "2.0": 2.0, "3.0": 2.0, "4.0": 1.0})
    code, out, err = command("one", "1.0..4.0", "--script", script, "--rounds", 6, "--out", tmp_path / "out")
    assert code == 1, out + err
    assert out.startswith("one 4.0 against 1.0: Planted is 1.0")
    assert ": no change to look for." in out
    assert len(list(folder_of(tmp_path / "out").glob("indicators/*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no package and range of versions"),
        (["one", "3.0..1.0"], "the older version first"),
        (["one", "1.0..9.0"], "no wheel of this version of one"),
        (["one", "1.0..3.0", "--with", "one<2"], "--with is for other packages"),
        (["one", "1.0..3.0", "--with", "aaa==1"], "an end of the range has no solution"),
        (["one", "1.0..3.0", "--indicator", "sort"], "exactly one indicator is needed"),
        (["one", "1.0..3.0", "--rounds", "20,10"], "increasing numbers"),
        (["one", "1.0..3.0", "--alpha", "2"], "where: --alpha"),
        (["--resume", "missing"], "not the folder of a bisection"),
        (["--resume", "missing", "--threads", "2"], "a resumed bisection keeps its settings"),
        (["one", "1.0..3.0", "--resume", "missing"], "a resumed bisection keeps its settings"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_made(
    command: Command, index: Index, tmp_path: Path, arguments: list[str], told: str
) -> None:
    index([Made("one", "1.0"), Made("one", "2.0"), Made("one", "3.0", ("aaa>=2",)), Made("aaa", "1"), Made("aaa", "2")])
    more = [] if "--resume" in arguments else ["--script", str(plant(tmp_path, {})), "--out", str(tmp_path / "out")]
    code, printed, err = command(*arguments, *more)
    assert (code, printed) == (2, "")
    assert told in err
    assert not (tmp_path / "out").exists()


def test_a_changed_plan_is_refused(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "bisect"
    folder.mkdir()
    for text, told in (("{", "JSON"), ("[]", "not a plan"), ('{"format_version": 2}', "newer"), ("{}", "is missing")):
        (folder / PLAN).write_text(text)
        code, _, err = command("--resume", folder)
        assert (code, told in err) == (2, True), err


@pytest.mark.slow
def test_versions_that_cannot_be_measured_are_passed_over(command: Command, index: Index, tmp_path: Path) -> None:
    wheels = [Made("one", f"{number}.0") for number in range(1, 9) if number not in (3, 4)]
    # The third has no solution; the files of the fourth are not what the index says.
    index([*wheels, Made("one", "3.0", ("missing",)), Made("one", "4.0", body="# of this test\n")])
    (place,) = (tmp_path / "index").glob("one/one-4.0-*.whl")
    script = plant(tmp_path, eight(6) | {"6.0": None})
    given = ["one", "1.0..8.0", "--script", script, "--rounds", 6, "--out", tmp_path / "out", "--json"]
    place.write_bytes(Made("one", "4.0", body="# other bytes\n").content)
    code, out, err = command(*given)
    found = json.loads(out)
    assert code == 0, out + err
    assert (found["found"], found["version"], found["possible_versions"]) == (True, None, ["6.0", "7.0"])
    assert "between 5.0 and 7.0, by 7.0 or a version that was not measured (6.0)" in found["answer"]
    reasons = {one["version"]: one["reason"] for one in found["versions"] if one["state"] == "skipped"}
    assert set(reasons) == {"3.0", "4.0", "6.0"}
    assert "missing" in reasons["3.0"]
    assert reasons["4.0"].startswith("cannot be installed: ")
    assert "this version is broken" in reasons["6.0"]


@pytest.mark.slow
def test_a_limit_of_probes_can_be_raised(command: Command, index: Index, tmp_path: Path) -> None:
    index([Made("one", f"{number}.0") for number in range(1, 9)])
    script = plant(tmp_path, {**eight(3, 1.2), **{f"{number}.0": 1.2 * 1.5 for number in range(6, 9)}})
    given = ["one", "1.0..8.0", "--script", script, "--rounds", 6, "--max-probes", 1]
    code, out, err = command(*given, "--out", tmp_path / "out")
    assert code == 1, out + err
    assert "between 4.0 and 8.0" in out
    assert "3 version(s) between are left: --max-probes 1 was reached" in out
    code, out, err = command("--resume", folder_of(tmp_path / "out"), "--max-probes", 5, "--json")
    found = json.loads(out)
    assert code == 0, out + err
    assert (found["version"], found["n_probes"]) == ("6.0", 3)
    assert found["share_of_change"] == pytest.approx(0.69, abs=0.01)
    assert [(one["before"], one["after"]) for one in found["other_steps"]] == [("1.0", "5.0")]
    assert "This step is 69 % of the whole change" in found["answer"]


@pytest.mark.slow
def test_ends_of_too_few_rounds_are_not_known_and_go_on(command: Command, index: Index, tmp_path: Path) -> None:
    index([Made("one", "1.0"), Made("one", "2.0")])
    given = ["one", "1.0..2.0", "--script", plant(tmp_path, {"1.0": 1.0, "2.0": 1 / 1.5}), "--rounds", 2]
    code, out, err = command(*given, "--out", tmp_path / "out")
    assert code == 1, out + err
    assert out.startswith("Not known: the session of both ends is invalid: ")
    assert "at least 5 are needed" in out
    further, again = [line.removeprefix("next: workbench ") for line in out.splitlines() if line.startswith("next: ")]
    with pytest.raises(SystemExit) as ended:
        main(further.split())
    assert not ended.value.code
    code, out, err = command(*again.removeprefix("indicators bisect ").split())
    assert code == 0, out + err
    assert "one 2.0 made Planted 1.50x faster" in out
    assert "than 1.0; 0 probes of 0 versions between." in out


@pytest.mark.slow
def test_one_of_several_metrics_must_be_chosen(command: Command, index: Index, tmp_path: Path) -> None:
    index([Made("one", "1.0"), Made("one", "2.0")])
    script = plant(tmp_path, {"1.0": 1.0, "2.0": 1.5})
    script.write_text(script.read_text().replace('"@result": {', '"@result": {"other_ms": 1 + os.getpid() % 7 / 1e4, '))
    code, _, err = command("one", "1.0..2.0", "--script", script, "--rounds", 6, "--out", tmp_path / "out")
    assert (code, "exactly one metric is needed for the search" in err) == (2, True)
    assert "allowed: Planted.other_ms, Planted.elapsed_ms" in err
    code, out, _ = command("--resume", folder_of(tmp_path / "out"), "--metric", "Planted.elapsed_ms")
    assert (code, out.startswith("one 2.0 made Planted.elapsed_ms 1.50x slower")) == (0, True)
    assert load_bisection(folder_of(tmp_path / "out")).plan.metric == "Planted.elapsed_ms"


@pytest.mark.slow
def test_a_changed_script_is_not_compared_with_what_was_measured(
    command: Command, index: Index, tmp_path: Path
) -> None:
    index([Made("one", f"{number}.0") for number in range(1, 4)])
    script = plant(tmp_path, {"1.0": 1.0, "2.0": 1.0, "3.0": 1.5})
    given = ["one", "1.0..3.0", "--script", script, "--rounds", 6, "--max-probes", 0]
    assert command(*given, "--out", tmp_path / "out")[0] == 1
    script.write_text(script.read_text() + "\n# changed\n")
    code, _, err = command("--resume", folder_of(tmp_path / "out"), "--max-probes", 1)
    assert (code, "the indicator has changed since the bisection started" in err) == (2, True)
