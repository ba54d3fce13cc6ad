"""A slowdown of 10 % under busy loops on all cores: CPU time tells it apart where wall time cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from workbench.indicators.config import session_config
from workbench.indicators.contract.indicator import Case, Indicator, parameter, result
from workbench.indicators.measurement.sessions import start_session

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1800)]

SCRIPT = """
import json, os, sys, time
n, path = int(os.environ["PI_N"]), sys.prefix + "/factor"
more = float(open(path).read()) if os.path.exists(path) else 1.0
start, begun, total = time.perf_counter(), time.process_time(), 0
for i in range(int(n * more)):
    total += i
cpu, wall = 1000 * (time.process_time() - begun), 1000 * (time.perf_counter() - start)
print(json.dumps({"name": "Spin", "framework": "python", "@parameters": {"n": n}, "@result": {"elapsed_ms": wall},
                  "@cpu": {"elapsed_ms": cpu}}))
"""


class Spin(Indicator):
    """A loop; an environment with a file `factor` makes it longer."""

    script: ClassVar[Path | str] = SCRIPT
    n: int = parameter(2_000_000, ge=1)
    elapsed_ms: float = result(unit="ms", better="lower")


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    made = tmp_path_factory.mktemp("environments")
    for name in ("base", "slow"):
        venv.create(made / name, with_pip=False, symlinks=True)
    (made / "slow" / "factor").write_text("1.10")
    return tuple(f"{name}={made / name}" for name in ("base", "slow"))


@pytest.fixture
def busy_loops() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("busy_loops")
@pytest.mark.parametrize("seed", range(3))
def test_ten_percent_by_cpu_time_are_slower_or_not_decided_and_never_anything_else(
    seed: int, pythons: tuple[str, ...], tmp_path: Path
) -> None:
    config = session_config(python=pythons, rounds=(10, 30), clock="cpu", seed=seed)
    found = start_session(config, cases=[Case.from_parameters(Spin)], out=tmp_path).compared
    (row,) = found.effects.filter(~found.effects["control"]).to_dicts()
    # Whether 30 rounds decide depends on what else the machine does: four of five did beside a test suite.
    assert row["verdict"] in ("SLOWER", "UNDECIDED"), row
    assert row["clock"] == "cpu"
    assert found.valid == (row["verdict"] == "SLOWER")
