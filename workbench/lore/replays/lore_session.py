"""A session that stays, in a process of its own: one Spark for many replays of a notebook or script."""

from __future__ import annotations

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from workbench.core.child_process import ChildProcess
from workbench.core.errors import InputError, RunFailedError, WorkbenchError
from workbench.lore.replays.operator_replay import ReplayOptions, ReplayResult, VariantOptions
from workbench.lore.replays.operator_runs import RunOptions, RunResult, write_changed_rows
from workbench.lore.replays.replay_outcome import build_command, child_environment

END_S = 60
INTERRUPTED_S = 10
MAX_ANSWER_BYTES = 64 << 20


class LoreSession:
    """One Spark for many replays; see `lore.session`. It ends with its `with` block, `close`, or this process."""

    def __init__(self) -> None:
        # Detached: at this interpreter's exit the end of its input ends it, so that Spark removes its files.
        self._child = ChildProcess(
            [sys.executable, "-m", "workbench", "lore", "session", "--json"],
            name="the session",
            env=child_environment(),
            with_stdin=True,
            max_line_bytes=MAX_ANSWER_BYTES,
            is_detached=True,
        )
        self._n_unanswered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the session."""
        self.close()

    def start_spark(self, **options: Any) -> None:
        """Have Spark start now, and do not wait for it: confs, engine, master, driver_memory of `ReplayOptions`."""
        self._child.write_stdin(shlex.join(build_command("start", None, options, VariantOptions)) + "\n")
        self._n_unanswered += 1

    def replay(self, folder: str | Path, **options: Any) -> ReplayResult:
        """`lore.replay` in this session: options are the fields of `ReplayOptions`."""
        words = build_command("replay", str(folder), options, ReplayOptions)
        return ReplayResult.model_validate(self._ask(words))

    def verify(self, folder: str | Path, **options: Any) -> ReplayResult:
        """`replay` without timed runs."""
        return self.replay(folder, **{**options, "repeat": 0})

    def run(self, folder: str | Path, inputs: Mapping[str, Any] | None = None, **options: Any) -> pl.DataFrame:
        """Run the operator over these rows, by name of the input, and return its output; the dump has the others.

        Parameters
        ----------
        inputs
            polars, pandas, pyarrow or Spark frames with the columns of the input.
        **options
            Other fields of `operator_runs.RunOptions`, such as confs.

        Raises
        ------
        ConfigError, InputError
            Rows with other columns or types; the dump was refused.
        RunFailedError
            The operator failed on these rows; the message has its error.
        """
        import polars as pl

        with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
            paths: dict[str, Path] = {}
            for name, rows in (inputs or {}).items():
                paths[name] = Path(scratch) / f"rows-{len(paths)}.parquet"
                write_changed_rows(rows, paths[name])
            out = Path(scratch) / "output.parquet"
            words = build_command("run", str(folder), {**options, "inputs": paths, "out": out, "show": 0}, RunOptions)
            result = RunResult.model_validate(self._ask(words))
            if result.failure is not None:
                raise RunFailedError(
                    "the operator failed on these rows",
                    where=folder,
                    found=result.failure,
                    do="look at the row that the error names, or remove rows by halves",
                )
            rows = pl.read_parquet(out)
            if result.n_rows and not rows.width:
                raise InputError(
                    "the output has rows without columns, which a table cannot store",
                    where=folder,
                    found=f"{result.n_rows} rows",
                    do="count them by command: workbench lore run",
                )
            return rows

    def close(self) -> None:
        """End Spark and its process; nothing when it has ended."""
        self._child.end(grace_s=2 * END_S)

    def _ask(self, words: list[str]) -> Any:
        """Send a command to the session's process and return its JSON document."""
        try:
            # What fails at the start fails again with the command.
            for _ in range(self._n_unanswered):
                self._child.wait_for_line(lambda _: True, timeout_s=math.inf)
            self._n_unanswered = 0
            line = self._child.ask(shlex.join(words).replace("\n", " "))
        except WorkbenchError:
            found = self._child.stderr_text[-2000:] or None
            raise RunFailedError("the session has ended", found=found, do="start another one") from None
        except BaseException:
            # Ctrl-C in the middle: the answer that is still to come must not be taken for the next one's.
            self._child.end(grace_s=INTERRUPTED_S)
            raise
        answer = json.loads(line)
        if answer["document"] is not None and answer["exit_code"] in (0, 1):
            return answer["document"]
        message = str(answer["message"]).strip()[-4000:].removeprefix("Error: ")
        if answer["exit_code"] == 2:
            raise InputError(f"lore {words[0]} was refused", found=message)
        raise RunFailedError(f"lore {words[0]} failed", found=message)
