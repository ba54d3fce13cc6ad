"""The samples are what a JVM writes today: recorded anew, they are read alike and name what that JVM resolved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.lore.dump_reader import java_stream, meta_files
from workbench.spark import jvm

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("javac") is None or shutil.which("java") is None:
        pytest.skip("no JDK with javac on PATH")
    target = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, str(SAMPLES / "record.py"), str(target)]
    ended = subprocess.run(
        command, env=os.environ | jvm.build_spark_environment(), capture_output=True, text=True, timeout=240, cwd=target
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return target


@pytest.mark.spark
def test_what_is_recorded_anew_names_what_the_jvm_resolved(recorded: Path) -> None:
    names = json.loads((recorded / "names.json").read_text())
    assert len(names) == 9
    for name, resolved in names.items():
        found = java_stream.list_class_names((recorded / name).read_bytes())
        assert found >= set(resolved)
        # The stream in a byte array is seen though the JVM leaves it alone.
        assert found - set(resolved) == ({"Protocol$Hidden"} if name == "nested_in_byte_array.bin" else set())


@pytest.mark.spark
def test_what_is_recorded_anew_reads_like_the_sample(recorded: Path) -> None:
    for name in ("simulated_rdd.meta", "simulated_rdd_vector.meta"):
        kept, anew = (meta_files.read_rdd_meta(folder / "scala_2.12" / name) for folder in (SAMPLES, recorded))
        assert [(column.name, column.type) for column in kept.columns] == [
            (column.name, column.type) for column in anew.columns
        ]
        assert kept.output_partitions == anew.output_partitions
    kept_plan, plan = (meta_files.read_plan_meta(folder / "scala_2.12" / "plan.meta") for folder in (SAMPLES, recorded))
    assert plan.nodes == kept_plan.nodes
    assert [function.name for function in plan.functions] == [function.name for function in kept_plan.functions]
