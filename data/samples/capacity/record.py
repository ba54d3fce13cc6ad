"""Record the run folders of this folder: python data/samples/capacity/record.py [AREA …]

Each is a run of a command of the house on this project's samples or on its simulator, from which the tables that a plan
reads are kept, with columns as they were. `indicators` measures two stacks and needs a package index the first time;
the others read samples. Names and paths of the machine are taken out of run.json; of inputs only those below the
checkout are named.
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
    """Run a notebook; its run folder."""
    given = [word for text in parameters for word in ("-p", text)]
    told = house("run", area, *given, "--out", str(out), "--json")
    return Path(json.loads(told)["runs"][0]["folder"])


def house(*words: str) -> str:
    """What a command of the house prints."""
    command = [sys.executable, "-m", "workbench", *words]
    return subprocess.run(command, cwd=ROOT / "notebooks", check=True, stdout=subprocess.PIPE, text=True).stdout


def speedup(out: Path) -> Path:
    """Five applications, the sessions of the recorded pair on plain Spark, with made-up prices."""
    logs = "logs=[" + ", ".join(LOGS) + "]"
    return notebook("speedup", out, "mode=fleet", logs, "price_baseline_per_h=1.2", "price_candidate_per_h=1.8")


def sizing(out: Path) -> Path:
    """The simulated service of the sizing notebook, two GPUs."""
    return notebook("sizing", out)


def indicators(out: Path) -> Path:
    """numpy 2.4.6 against 1.26.4 at sorting."""
    words = ("--stack", "numpy==1.26.4", "--stack", "numpy==2.4.6", "--indicator", "sort", "--indicator", "argsort")
    house("indicators", "run", *words, "--rounds", "20", "--seed", "1", "--out", str(out))
    (folder,) = (out / "indicators").iterdir()
    house("indicators", "recommend", str(folder))
    return folder


def scaletest(out: Path) -> Path:
    """Recorded runs of two schedulers."""
    return notebook("scaletest", out)


def keep(made: Path, area: str) -> None:
    """The record and the tables that a plan needs."""
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
    """The record without what is of the machine: its system, its load, paths."""
    host = record["host"]
    record["host"] = {name: host[name] for name in ("cpu_model", "cores", "memory_bytes", "accelerators")}
    record["tables"] = [one for one in record["tables"] if one["name"] in KEPT[area]]
    record["git_commit"] = record["git_commit"] and record["git_commit"].removesuffix("-dirty")
    told = json.dumps(record).replace(f"{ROOT}/", "").replace(str(Path(tempfile.gettempdir())), "OUT")
    found: dict[str, Any] = json.loads(told)
    found["command"] = (
        f"workbench {'run ' if area != 'indicators' else ''}{area}{' run' if area == 'indicators' else ''}"
    )
    return found


def main() -> None:
    """Record the areas that are named, or all."""
    for area in sys.argv[1:] or KEPT:
        with tempfile.TemporaryDirectory() as folder:
            keep(globals()[area](Path(folder)), area)
        print(area, sum(path.stat().st_size for path in (HERE / area).rglob("*") if path.is_file()), "bytes")


if __name__ == "__main__":
    main()
