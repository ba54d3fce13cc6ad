"""Record the run folders of this folder: python data/samples/capacity/record.py [AREA …]

Each is a run of a workbench command on this project's samples or on its simulator; only the tables that a plan reads
are kept, unchanged. `indicators` measures two stacks and needs a package index the first time; the others read samples.
Names and paths of the machine are removed from run.json.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KEPT = {
    "speedup": ("applications",),
    "sizing": ("estimates", "steps"),
    "indicators": ("recommendations", "effects"),
    "scaletest": ("sustained",),
}
LOGS = [f"../data/samples/speedup/tpch-sf1/logs/spark-s{number}.zstd" for number in range(1, 6)]


def notebook(area: str, out: Path, *parameters: str) -> Path:
    """Run a notebook, and return its run folder."""
    options = [word for text in parameters for word in ("-p", text)]
    document = call_workbench("run", area, *options, "--out", str(out), "--json")
    return Path(json.loads(document)["runs"][0]["folder"])


def call_workbench(*words: str) -> str:
    """Run a workbench command, and return its output."""
    command = [sys.executable, "-m", "workbench", *words]
    return subprocess.run(command, cwd=ROOT / "notebooks", check=True, stdout=subprocess.PIPE, text=True).stdout


def speedup(out: Path) -> Path:
    """Five applications, the sessions of the recorded pair on plain Spark, with invented prices."""
    logs = "logs=[" + ", ".join(LOGS) + "]"
    return notebook("speedup", out, "mode=fleet", logs, "price_baseline_per_h=1.2", "price_candidate_per_h=1.8")


def sizing(out: Path) -> Path:
    """The simulated service of the sizing notebook, two GPUs."""
    return notebook("sizing", out)


def indicators(out: Path) -> Path:
    """Sorting with numpy 2.4.6 compared with 1.26.4."""
    words = ("--stack", "numpy==1.26.4", "--stack", "numpy==2.4.6", "--indicator", "sort", "--indicator", "argsort")
    call_workbench("indicators", "run", *words, "--rounds", "20", "--seed", "1", "--out", str(out))
    (folder,) = (out / "indicators").iterdir()
    call_workbench("indicators", "recommend", str(folder))
    return folder


def scaletest(out: Path) -> Path:
    """Recorded runs of two schedulers."""
    return notebook("scaletest", out)


def keep(made: Path, area: str) -> None:
    """Keep the record and the tables that a plan needs."""
    target = HERE / area
    shutil.rmtree(target, ignore_errors=True)
    (target / "tables").mkdir(parents=True)
    for name in KEPT[area]:
        frame = pl.read_parquet(made / "tables" / f"{name}.parquet")
        if "log" in frame.columns:
            frame = frame.with_columns(pl.col("log").str.replace_all(f"{ROOT}/", "", literal=True))
        frame.write_parquet(target / "tables" / f"{name}.parquet", compression="zstd")
    record = json.loads((made / "run.json").read_text())
    (target / "run.json").write_text(json.dumps(scrubbed(record, area), indent=1, ensure_ascii=False) + "\n")


def scrubbed(record: dict[str, Any], area: str) -> dict[str, Any]:
    """The record without the machine's system, load and paths."""
    host = record["host"]
    record["host"] = {name: host[name] for name in ("cpu_model", "cores", "memory_bytes", "accelerators")}
    record["tables"] = [one for one in record["tables"] if one["name"] in KEPT[area]]
    record["git_commit"] = record["git_commit"] and record["git_commit"].removesuffix("-dirty")
    text = json.dumps(record).replace(f"{ROOT}/", "").replace(str(Path(tempfile.gettempdir())), "OUT")
    found: dict[str, Any] = json.loads(text)
    found["command"] = (
        f"workbench {'run ' if area != 'indicators' else ''}{area}{' run' if area == 'indicators' else ''}"
    )
    return found


def main() -> None:
    """Record the given areas, or all."""
    for area in sys.argv[1:] or KEPT:
        with tempfile.TemporaryDirectory() as folder:
            keep(globals()[area](Path(folder)), area)
        print(area, sum(path.stat().st_size for path in (HERE / area).rglob("*") if path.is_file()), "bytes")


if __name__ == "__main__":
    main()
