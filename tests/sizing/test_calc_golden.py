"""The calculator on recorded jobs, beside what the real toolkit 1.9.0 printed and wrote for them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED
from tests.sizing.conftest import Sizing

GOLDEN = SHARED / "golden" / "sizing"
CASES = sorted(path.name for path in GOLDEN.iterdir()) if GOLDEN.is_dir() else []
REFUSED = ("err_concurrency_dup", "err_no_gpus")
CRASHED = ("target_equals_intercept", "negative_slope")
SIZED_ON_RUNTIME = "no_llm_latency_zero"
REL = 1e-9


def run(case: str, folder: Path, sizing: Sizing, *extra: str) -> tuple[int, str, str, Any]:
    """Exit code, stdout, stderr and the document that was written, null for none."""
    calc_dir = folder / "calc_dir"
    shutil.copytree(GOLDEN / case / "calc_dir", calc_dir)
    for path in (calc_dir, *calc_dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    argv = json.loads((GOLDEN / case / "expected.json").read_text())["argv"]
    argv = [str(calc_dir) if word == "calc_dir" else word for word in argv]
    said = sizing("calc", *argv, *extra)
    written = list(calc_dir.glob("offline/job_*/calc_runner_output.json"))
    assert len(written) <= 1
    return *said, json.loads(written[0].read_text()) if written else None


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}/{key}")
    else:
        yield path, value


def same(ours: Any, theirs: Any) -> list[str]:
    """What differs, keys and their order included; numbers to 1e-9."""
    mine, other = list(leaves(ours)), list(leaves(theirs))
    if [path for path, _ in mine] != [path for path, _ in other]:
        return ["keys or their order"]
    return [
        f"{path}: {a} and {b}"
        for (path, a), (_, b) in zip(mine, other, strict=True)
        if not (a == b or (isinstance(a, float) and isinstance(b, float | int) and math.isclose(a, b, rel_tol=REL)))
    ]


@pytest.fixture
def expected(shared: Path, request: pytest.FixtureRequest) -> Any:
    return json.loads((GOLDEN / request.getfixturevalue("case") / "expected.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_document_is_that_of_the_toolkit(case: str, expected: Any, tmp_path: Path, sizing: Sizing) -> None:
    code, _, _, document = run(case, tmp_path, sizing, "--no-plots")
    if case in CRASHED:
        assert (code, expected["returncode"]) == (2, 1)
        assert document["gpu_estimates"] == {"gpu_estimate_by_wf_runtime": None, "gpu_estimate_by_llm_latency": None}
        assert document["fit_results"]["wf_runtime_fit"] is not None
    elif case in REFUSED:
        assert (code, document, expected["wrote_output"]) == (2, None, False)
    elif case == SIZED_ON_RUNTIME:
        assert math.isclose(document["gpu_estimates"]["gpu_estimate_by_wf_runtime"], 100 / 14 * 8, rel_tol=REL)
        assert document["gpu_estimates"]["gpu_estimate_by_llm_latency"] is None
        assert expected["output"]["gpu_estimates"]["gpu_estimate_by_wf_runtime"] is None
    else:
        assert same(document, expected["output"]) == []


def table_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize("case", [c for c in CASES if c not in (SIZED_ON_RUNTIME, *CRASHED, *REFUSED)])
def test_the_printed_table_and_estimates_are_those_of_the_toolkit(
    case: str, expected: Any, tmp_path: Path, sizing: Sizing
) -> None:
    _, out, _, _ = run(case, tmp_path, sizing, "--no-plots")
    theirs = (GOLDEN / case / "stdout.txt").read_text().replace("\x1b[0m", "")
    wanted, shown = table_of(theirs), table_of(out)
    # Columns of counts come in addition, at the right.
    assert [row[: len(wanted[0])] for row in shown] == [
        row if not set("".join(row)) <= {"-"} else shown[1][: len(row)] for row in wanted
    ]
    told = [line for line in theirs.splitlines() if line.startswith(("Targets", "Test", "Per", "Alerts!", "Estimated"))]
    assert [line for line in told if line not in out.splitlines()] == []


def test_every_line_of_the_tables_is_set_as_the_toolkit_sets_it(shared: Path, tmp_path: Path, sizing: Sizing) -> None:
    """Without items over the target there is no further column: then the whole text is the same."""
    _, out, _, _ = run("interrupted_two", tmp_path, sizing, "--no-plots")
    theirs = (GOLDEN / "interrupted_two" / "stdout.txt").read_text().replace("\x1b[0m", "")
    assert [line for line in out.splitlines() if not line.startswith("Concurrency ")] == theirs.splitlines()


def test_all_golden_cases_are_there(shared: Path) -> None:
    assert len(CASES) >= 14
