"""`workbench speedup package`: what Spark executors need to read a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.terminal import print_text

OutFile = Annotated[Path, typer.Option("--out", metavar="FILE", help="Archive to write: *.tar.gz.")]
Extra = Annotated[
    list[str] | None, typer.Option("--with", metavar="NAME", help="Further package for tasks, such as s3fs; repeat.")
]
WithDriver = Annotated[
    bool, typer.Option("--driver", help="Also for a driver inside the cluster (spark-submit --deploy-mode cluster).")
]


def package(
    out: OutFile = Path("workbench-fleet.tar.gz"),
    extra: Extra = None,
    driver: WithDriver = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the workbench as an archive for Spark executors that do not have it.

    It holds this workbench and the packages that its tasks import, as they are installed here: executors need Python
    of the same minor version on the same kind of system. It takes about a quarter of a minute.

    Example: workbench speedup package --with s3fs --out workbench-fleet.tar.gz
    """
    from workbench.speedup.fleet.executor_archive import ALIAS, write_executor_archive

    archive = write_executor_archive(out, extra=extra or [], with_driver=driver)
    settings = [f"--conf {name}={value}" for name, value in archive.settings.items()]

    def print_archive() -> None:
        print_text(f"{archive.path}: {archive.size_bytes / 1e6:.0f} MB, reader {archive.reader_code}")
        print_text("for `workbench speedup qualify --backend spark` add:\n  " + "\n  ".join(settings))
        if archive.main is not None:
            print_text(
                "or from YARN or Kubernetes itself:\n"
                f"  spark-submit --deploy-mode cluster --archives {archive.path}#{ALIAS}"
                f" --conf spark.executorEnv.PYTHONPATH={ALIAS} --conf spark.yarn.appMasterEnv.PYTHONPATH={ALIAS}"
                f" {archive.main} LOGS --factors factors.json --results URL"
            )

    document: dict[str, object] = {"path": archive.path, "main": archive.main, "size_bytes": archive.size_bytes}
    document |= {"reader": archive.reader_code, "settings": archive.settings, "distributions": archive.distributions}
    finish_command(print_archive, document, as_json=as_json, written=[out])
