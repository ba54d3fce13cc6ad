"""Makes the process that calls `prepare` kill itself in its third batch, with the transaction open."""

from __future__ import annotations

import os
import signal
from typing import Any

from workbench.indicators.store import sql_rows


def prepare() -> None:
    real = sql_rows.insert_runs
    calls: list[int] = []

    def insert_runs(*given: Any) -> dict[tuple[str, int], int]:
        made = real(*given)
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    sql_rows.insert_runs = insert_runs
