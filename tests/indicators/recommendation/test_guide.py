"""The guide's example of a user's unit is run as it stands there, by the command that stands there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.indicators.recommendation import making
from workbench.cli.app import main

GUIDE = (ROOT / "docs" / "guide" / "indicators-units.md").read_text()
SOURCE = GUIDE.split("```python\n", 1)[1].split("```", 1)[0]
COMMAND = GUIDE.split("```sh\n", 1)[1].split("\n", 1)[0]
BASE, SMALL = making.NAMES["2.2.6"], making.NAMES["2.0.2"]


def test_the_example_moves_the_recommendation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    session = making.plan([making.NUMPY[v] for v in ("2.2.6", "2.0.2", "2.4.6")], ("Sort", "Matmul"))
    peaks = {BASE: 100 << 10, SMALL: 50 << 10}
    making.archive(tmp_path / "data/samples/indicators/numpy", session, {}, peaks=peaks)
    monkeypatch.chdir(tmp_path)
    Path("memory.py").write_text(SOURCE)
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(COMMAND)[1:], "--json"])
    document = json.loads(capsys.readouterr().out)  # type: ignore[attr-defined]
    assert ended.value.code == 0
    # Half the memory counts like being 7 % faster; without the unit there is no difference.
    assert document["recommended"] == SMALL
    assert f"{SMALL} needs 50 MiB at its peak" in {one["message"] for one in document["justification"]}
    left_out = {one["stack"]: one["reason"] for one in document["excluded"]}
    assert left_out == {making.NAMES["2.4.6"]: "its peak memory was never measured"}
