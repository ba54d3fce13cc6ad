"""What reading an event log takes at least: its lines decoded and nothing kept, its tables written and nothing read.

    python -m bench.eventlog_floor decode LOG
    python -m bench.eventlog_floor write FOLDER

`decode` is one process; two take half of it at best. `write` builds the tables that `eventlog facts` left in FOLDER out
of Python's values, writes them, and prints its seconds: one process does that, however many read.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from workbench.eventlog import tables
from workbench.eventlog.fold import BUFFER_BYTES, TASK_END_HEAD, TASK_START_HEAD
from workbench.eventlog.listener_events import DECODERS, STAGE_COMPLETED, STAGE_SUBMITTED, TASK_END


def decode_lines(log: Path) -> int:
    """Decode each line that the reader decodes, as it does; the number of lines."""
    decoders = DECODERS | {
        b"SparkListenerStageSubmitted": STAGE_SUBMITTED,
        b"SparkListenerStageCompleted": STAGE_COMPLETED,
    }
    n_lines = 0
    with log.open("rb", buffering=BUFFER_BYTES) as file:
        for line in file:
            n_lines += 1
            if line.startswith(TASK_END_HEAD):
                TASK_END.decode(line)
            elif not line.startswith(TASK_START_HEAD):
                decoder = decoders.get(line[10 : line.index(b'"', 10)])
                if decoder is not None:
                    decoder.decode(line)
    return n_lines


def time_writing(folder: Path) -> float:
    """Seconds that building and writing the tables of a folder take, their values in memory."""
    columns = {table.name: table.read(folder).to_dict(as_series=False) for table in tables.ALL_TABLES}
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        for table in tables.ALL_TABLES:
            table.write(table.frame(columns[table.name]), Path(scratch))
        return time.perf_counter() - begun


def main() -> int:
    """Do one of the two."""
    import gc

    gc.disable()
    what, place = sys.argv[1], Path(sys.argv[2])
    print(decode_lines(place) if what == "decode" else time_writing(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
