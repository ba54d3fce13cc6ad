"""What binds is named right for at least 18 of 20 planted services, wrong for none, and not known for the others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.planted_services import HIDDEN, NOTHING, SERVICES, PlantedLibrary, serve_planted
from workbench.core import nvml
from workbench.sizing.charts import list_server_charts
from workbench.sizing.load.sweep_runner import run_sweep

QUICK: dict[str, Any] = {"least_samples": 120, "most_samples": 120, "min_step_s": 0, "processes": 0}
TARGET: dict[str, Any] = {"protocol": "openai", "model": "m", "metrics_every_s": 0.05, "users": [12]}


@pytest.mark.live
@pytest.mark.slow
def test_what_binds_is_named_for_twenty_planted_services(monkeypatch: pytest.MonkeyPatch) -> None:
    table = []
    for name, planted in SERVICES.items():
        has_gpu = planted.busy is not None and not planted.by_page
        if has_gpu:
            monkeypatch.setattr(nvml, "_load_library", lambda busy=planted.busy: PlantedLibrary(busy))
        with serve_planted(planted) as url:
            found = run_sweep(url=url, metrics_url=f"{url}/metrics", gpu_metrics=has_gpu, **QUICK, **TARGET)
        said = found.points["server_binds"][0]
        verdict = "right" if said == planted.truth or (said is None and planted.truth == NOTHING) else "wrong"
        table.append((name, planted.truth, said, "not known" if said is None and verdict == "wrong" else verdict))
        assert list_server_charts(found.points), name
    print("\n".join(f"{name:36} {truth:16} {said or '-':10} {verdict}" for name, truth, said, verdict in table))
    verdicts = [verdict for *_, verdict in table]
    assert len(verdicts) == 20
    assert verdicts.count("wrong") == 0
    assert verdicts.count("right") >= 18
    assert {truth for _, truth, _, verdict in table if verdict == "not known"} <= {HIDDEN}
