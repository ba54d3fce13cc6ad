"""The benchmarks' one shape, their command and their page; no benchmark is run here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as command
from tests.bench import document, headlines, shape
from tests.bench.shape import Bar, Row

OURS = Row("area", "a thing, wall time", "ours", "s", [1.0, 2.0, 4.0], bar=Bar("ratio", at_least=2, beside="theirs"))
THEIRS = Row("area", "a thing, wall time", "theirs", "s", [3.0, 6.0, 12.0], peer="tool 1.0")


def test_sides_take_turns_and_the_order_is_turned() -> None:
    order: list[str] = []

    def side(name: str) -> shape.Measure:
        return lambda: (order.append(name), {"wall_s": float(len(order))})[1]

    found = shape.alternating({"a": side("a"), "b": side("b")}, 3, warm_up=1)
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert found.of("a", "wall_s") == [3.0, 6.0, 7.0]


def test_a_trial_that_fails_has_no_value_is_counted_and_stops_nothing() -> None:
    numbers = iter(range(3))

    def sometimes() -> dict[str, float]:
        if next(numbers) == 1:
            raise RuntimeError("not this time")
        return {"wall_s": 2.0}

    found = shape.alternating({"a": sometimes, "b": lambda: {"wall_s": 6.0}}, 3)
    assert found.of("a", "wall_s") == [2.0, None, 2.0]
    assert found.failures == {"a": ["RuntimeError: not this time"], "b": []}
    ours, theirs = (Row("x", "y", side, "s", found.of(side, "wall_s")) for side in ("a", "b"))
    assert ours.told() == "2 s [2, 2] n=2, 1 failed"
    between = shape.ratio(ours, theirs)
    assert between is not None
    assert (between.estimate, between.n) == (pytest.approx(3), 2)


def test_a_ratio_is_above_one_where_ours_is_better() -> None:
    faster, more = shape.ratio(OURS, THEIRS), Row("x", "y", "ours", "/s", [8.0, 8.0], higher_is_better=True)
    less = Row("x", "y", "theirs", "/s", [2.0, 2.0], peer="1", higher_is_better=True)
    assert faster is not None
    assert faster.estimate == pytest.approx(3)
    rates = shape.ratio(more, less)
    assert rates is not None
    assert rates.estimate == pytest.approx(4)
    assert shape.told_ratio(shape.ratio(OURS, Row("x", "y", "never", "s", [None, None, None]))) == "–"


def test_rows_are_kept_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    assert shape.finish([OURS, THEIRS], path, {"tool 2.0": "not here"}) == 0
    assert shape.read(path) == ([OURS, THEIRS], {"tool 2.0": "not here"})
    assert "3 [3, 3] n=3 times theirs" in capsys.readouterr().out
    assert shape.finish([Row("x", "y", "z", "s", [None])], None) == 1


def kept(name: str, area: str, rows: list[Row], **changed: Any) -> dict[str, Any]:
    """What the command keeps of a benchmark."""
    from dataclasses import asdict

    told: dict[str, Any] = {"name": name, "area": area, "command": f"python -m {name}", "date": "2026-11-22"}
    told |= {"wall_s": 3.0, "exit_code": 0, "error": "", "commit": "c", "machine": {"processor": "P, 2 cores"}}
    return told | {"rows": [asdict(row) for row in rows], "missing": {}} | changed


def test_the_page_tells_figures_ratio_bar_machine_and_what_is_not_there() -> None:
    failed = kept("fleet", "speedup", [], exit_code=3, error="it broke", missing={"tool 2.0": "no Java"})
    page = document.written([kept("eventlog", "eventlog", [OURS, THEIRS]), failed])
    (line,) = [line for line in page.splitlines() if line.startswith("| a thing, wall time | ours")]
    assert line.split(" | ")[2:] == ["theirs (tool 1.0): 6 s [3, 12] n=3", "3 [3, 3] n=3", ">= 2 times: kept |"]
    assert "Measured 2026-11-22: processor P, 2 cores." in page
    assert "**Ended with exit code 3**: it broke" in page
    assert "- **tool 2.0**: no Java." in page
    assert "Not measured yet: `--only lore`, `--only lore-times`, `--only lore-cost`." in page


def test_a_bar_on_a_ratio_is_to_its_own_side() -> None:
    other = Row("area", "a thing, wall time", "json", "s", [1.0, 2.0, 4.0], peer="reference")
    page = document.written([kept("eventlog", "eventlog", [OURS, other])])
    (line,) = [line for line in page.splitlines() if line.startswith("| a thing, wall time | ours")]
    assert line.endswith("| – |")


def test_the_short_table_comes_into_the_readme_between_its_marks(tmp_path: Path) -> None:
    name, end, side, beside = headlines.TOLD[0]
    rows = [
        Row("eventlog", f"1 GB {end}", side, "s", [1.0]),
        Row("eventlog", f"1 GB {end}", beside, "s", [3.0], peer="1"),
    ]
    page = document.written([kept(name, "eventlog", rows)])
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- figures of python -m tests.bench -->\nold\n<!-- end of figures -->\nafter\n")
    assert document.into_readme(page, readme)
    block = document.BLOCK.search(readme.read_text())
    assert block is not None
    assert block[2].strip() == document.short_of(page)
    assert "3 (n=1)" in block[2]
    assert readme.read_text().startswith("before\n")
    readme.write_text("nothing\n")
    assert not document.into_readme(page, readme)


def test_every_benchmark_is_run_by_the_command() -> None:
    there = {path.stem for path in Path(document.__file__).parent.glob("bench_*.py")}
    assert {one.command[0] for one in headlines.ALL} == there
    assert len({one.name for one in headlines.ALL}) == len(headlines.ALL)
    assert {name for name, *_ in headlines.TOLD} <= {one.name for one in headlines.ALL}
    assert sum(one.minutes for one in headlines.ALL if not one.only_named) <= 45


def fake(monkeypatch: pytest.MonkeyPatch, lines: dict[str, list[str]]) -> list[str]:
    """Benchmarks that are one line of Python each; the names of those that were run."""
    ran: list[str] = []
    run = command._run

    def instead(line: list[str], log: Path, limit_s: float) -> tuple[int, str]:
        name = line[2].removeprefix("tests.bench.")
        ran.append(name)
        return run([sys.executable, "-c", *lines[name], line[-1]], log, limit_s)

    monkeypatch.setattr(command, "_run", instead)
    monkeypatch.setattr(command.host, "read_git_commit", lambda _: "c")
    monkeypatch.setattr(headlines, "ALL", tuple(headlines.Headline(name, "house", (name,), 0.1) for name in lines))
    monkeypatch.setattr(headlines, "TOLD", ())
    return ran


def test_one_that_fails_stops_no_other_and_is_the_only_one_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.dumps({"rows": kept("good", "house", [OURS])["rows"], "missing": {}})
    good = f"import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text({rows!r})"
    ran = fake(monkeypatch, {"bad": ["raise SystemExit('no such thing')"], "good": [good]})
    flags = ["--keep", str(tmp_path / "kept"), "--out", str(tmp_path / "page.md")]
    assert command.main(flags) == 1
    assert "again: python -m tests.bench --only bad" in capsys.readouterr().err
    page = (tmp_path / "page.md").read_text()
    assert "no such thing" in page
    assert "| a thing, wall time | ours: 2 s [1, 4] n=3" in page
    assert command.main(flags) == 1
    assert ran == ["bad", "good", "bad"]
    assert command.main([*flags, "--dry-run"]) == 0
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines()] == ["to", "kept"]
    assert ran == ["bad", "good", "bad"]


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--only", "fly"])
    assert ended.value.code == 2
    assert "--only fly: there is house" in capsys.readouterr().err
