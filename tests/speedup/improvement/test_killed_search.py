"""A search on a real Spark that is killed again and again: nothing of the user's changes, and nothing stays running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil
import pytest

from workbench.core import files
from workbench.speedup.improvement.improvement import PATCH_FILE, STATE_FILE, ImproveState

N_KILLS, MAX_S, GONE_S = 50, 14.0, 20.0
DEFAULTS = "spark.sql.shuffle.partitions 7\nspark.sql.codegen.wholeStage true\n"
QUERIES = (
    "-- name: flags\nSELECT l_returnflag, count(*) FROM lineitem GROUP BY 1;\n"
    "-- name: modes\nSELECT l_shipmode, sum(l_quantity) FROM lineitem GROUP BY 1;\n"
)


def digest_all(folder: Path) -> Mapping[str, str]:
    return {str(path): files.hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def list_left(folder: Path) -> list[psutil.Process]:
    """Processes whose command names the folder; those of a killed search end by themselves."""
    left = []
    for process in psutil.process_iter(["cmdline"]):
        if str(folder) in " ".join(process.info["cmdline"] or []) and process.pid != os.getpid():
            left.append(process)
    return left


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_after_fifty_kills_all_is_as_it_was_and_the_search_ends(tmp_path: Path) -> None:
    """About ten minutes."""
    mine, out, temp = tmp_path / "mine", tmp_path / "out", tmp_path / "temp"
    mine.mkdir()
    temp.mkdir()
    (mine / "spark-defaults.conf").write_text(DEFAULTS)
    (mine / "suite.sql").write_text(QUERIES)
    before = digest_all(mine)
    command = [sys.executable, "-m", "workbench", "speedup", "improve", "--queries", str(mine / "suite.sql")]
    command += ["--scale", "0.01", "--driver-memory", "1g", "--conf", "spark.sql.codegen.wholeStage=false"]
    command += ["--conf", "spark.sql.shuffle.partitions=300", "--conf", "spark.sql.adaptive.enabled=false"]
    command += ["--budget", "3600", "--out", str(out)]
    environment = os.environ | {"SPARK_CONF_DIR": str(mine), "TMPDIR": str(temp)}
    rng = np.random.default_rng(50)
    n_kills = 0
    for _ in range(N_KILLS):
        search = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            search.wait(float(rng.uniform(0.5, MAX_S)))
        except subprocess.TimeoutExpired:
            search.send_signal(signal.SIGKILL)
            search.wait()
            n_kills += 1
        _, alive = psutil.wait_procs(list_left(tmp_path), timeout=GONE_S)
        assert alive == []
        assert digest_all(mine) == before
        # A patch is there only with its proof.
        if (out / PATCH_FILE).exists():
            assert ImproveState.model_validate_json((out / STATE_FILE).read_text()).proven == "FASTER"
    assert n_kills >= N_KILLS // 2
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    print(f"{n_kills} kills; then it ended in {time.monotonic() - started:.0f} s: {done.stdout[:300]}")
    assert done.returncode == 0, done.stderr
    assert digest_all(mine) == before
