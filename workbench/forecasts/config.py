"""Settings of the notebook on forecasts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workbench.core.schema import StrictModel
from workbench.live.file_picker import Pick

SAMPLE = "../data/samples/forecasts/ledger.jsonl"
_LEDGER = Pick("ledger", files=("*.jsonl",))


class NotebookConfig(StrictModel):
    """Parameters of the notebook: the ledger, and which of its forecasts count."""

    ledger: Annotated[str, _LEDGER] = Field(default=SAMPLE, description="Ledger of forecasts; empty: your own.")
    in_time: bool = Field(default=False, description="Ignore forecasts whose outcome may have been known.")
