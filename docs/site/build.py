"""Build the site of the documents, offline: python -m docs.site.build OUT [--runs DIR] [--environment DIR].

The pages are those of the checkout, at their places, so that a link means the same here and there. Added are only pages
made from what says it already: commands from their own `--help`, Python from docstrings, methods from the guides'
headings, the gallery from runs. A dead link, anchor or a page that no menu names ends the build with code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.site import pages
from docs.site.pages import ROOT
from workbench.core.errors import WorkbenchError
from workbench.report.gallery import write_gallery

HERE = ROOT / "docs" / "site"
LOCK = HERE / "requirements.lock"
# What an environment was made of, so that it is made once and not asked about again without a network.
STAMP = ".workbench-docs"


def make_environment(folder: Path) -> Path:
    """The environment of the builder, made by uv from the lock beside this file; the path of its mkdocs."""
    stamp = folder / STAMP
    if not stamp.is_file() or stamp.read_bytes() != LOCK.read_bytes():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)  # noqa: S603
        python = str(folder / "bin" / "python")
        install = [*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", str(LOCK)]
        subprocess.run(install, check=True)  # noqa: S603
        shutil.copyfile(LOCK, stamp)
    return folder / "bin" / "mkdocs"


def build_site(out: Path, *, runs: Path | None, environment: Path) -> int:
    """Lay the pages out, run mkdocs over them, add the reports; the exit code of mkdocs."""
    mkdocs = make_environment(environment)
    with tempfile.TemporaryDirectory(prefix="workbench-docs-") as scratch:
        laid = Path(scratch) / "pages"
        pages.lay_out(laid, has_runs=runs is not None)
        if runs is not None:
            copy_reports(runs, laid / pages.REPORTS)
        settings = Path(scratch) / "mkdocs.yml"
        settings.write_text(pages.format_settings(laid, out), encoding="utf-8")
        code = run_builder(mkdocs, settings)
    # The index that a page opened from a disk reads, since a browser fetches no file there.
    index = out / "search" / "search_index.json"
    if code == 0:
        index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")
    return code


def run_builder(mkdocs: Path, settings: Path) -> int:
    """Run mkdocs and show what it warns of, which ends the build; the exit code."""
    command = [mkdocs, "build", "--clean", "--strict", "-f", settings]
    # A notice of its theme about a successor stands in decision 0043.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, env=environment, text=True, **both)  # noqa: S603
    if done.returncode:
        sys.stderr.writelines(f"{line}\n" for line in done.stdout.splitlines() if not line.startswith("INFO"))
    return done.returncode


def copy_reports(runs: Path, target: Path) -> None:
    """The gallery of a folder of runs with its reports, at the same places; nothing else of the runs is published."""
    gallery = runs / "index.html"
    if not gallery.is_file():
        write_gallery(runs)
    for path in (gallery, *sorted(runs.rglob("report.html"))):
        place = target / path.relative_to(runs)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of the site; what it holds is replaced")
    parser.add_argument("--runs", type=Path, help="folder with runs whose reports the site shows")
    default = Path(sys.prefix) / "docs"
    parser.add_argument("--environment", type=Path, default=default, help="environment of the builder")
    given = parser.parse_args()
    out = given.out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "sitemap.xml").is_file():
        sys.stderr.write(f"Error: the folder holds something else than a site\n  where: {given.out}\n")
        return 2
    try:
        code = build_site(out, runs=given.runs and given.runs.resolve(), environment=given.environment)
    except (WorkbenchError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 3
    if code == 0:
        sys.stdout.write(f"{out / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
