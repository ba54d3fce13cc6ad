"""python -m tests.contracts.keeping RUNS: made what lies below `kept/`, once, before the renaming; never run again.

RUNS is the folder of `workbench run all --out RUNS`. What users of that day had is copied: the notebooks, the Python of
the guides, and one small run folder an area, without pages and without what tells about a machine.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "kept"
BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_BYTES = 300_000
# The table of every request of a sweep is larger than all the rest.
LEFT_OUT = {("sizing", "requests")}


def keep_notebooks() -> None:
    """The notebooks as they are."""
    (KEPT / "notebooks").mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(path, KEPT / "notebooks")


def keep_guide_code() -> None:
    """Each block of Python of README.md and the guides: the page's name and the block's place in it, from 1 on."""
    (KEPT / "guide_code").mkdir(parents=True, exist_ok=True)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]:
        for place, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            (KEPT / "guide_code" / f"{page.stem}-{place}.py").write_text(code, encoding="utf-8")


def keep_run(folder: Path, area: str) -> None:
    """The record and the tables of a run, below `runs/<area>`."""
    target = KEPT / "runs" / area
    (target / "tables").mkdir(parents=True, exist_ok=True)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8").replace(f"{ROOT}/", ""))
    record["host"] |= {"cpu_model": "a CPU", "os": "Linux x86_64"}
    record["tables"] = [table for table in record["tables"] if (area, table["name"]) not in LEFT_OUT]
    for table in record["tables"]:
        shutil.copy(folder / "tables" / f"{table['name']}.parquet", target / "tables")
    (target / "run.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    # A factor model that later runs of the same user name.
    for name in ("factors.json", "what_if.json"):
        if (folder / name).is_file():
            shutil.copy(folder / name, target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        shutil.rmtree(target)
        print(f"{area}: {size} bytes are too many, and nothing is kept")


if __name__ == "__main__":
    keep_notebooks()
    keep_guide_code()
    for run in sorted(Path(sys.argv[1]).glob("*/*/run.json")):
        keep_run(run.parent, run.parent.parent.name)
