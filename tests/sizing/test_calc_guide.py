"""The example of the guide is what the command prints."""

from __future__ import annotations

from tests.conftest import ROOT
from workbench import sizing
from workbench.sizing.compat_nat import calc_outputs

GUIDE = (ROOT / "docs" / "guide" / "sizing-slope.md").read_text()


def test_the_example_is_what_the_command_prints() -> None:
    runtime = {1: 4.03488, 2: 4.71197, 4: 5.67581, 8: 7.90895, 16: 12.677, 32: 24.5307}
    llm = {1: 1.14981, 2: 1.3591, 4: 1.50682, 8: 2.10668, 16: 3.30196, 32: 6.57847}
    total = {1: 8.06976, 2: 9.42394, 4: 11.3516, 8: 15.8179, 16: 25.354, 32: 49.0614}
    levels = {
        level: {"llm_latency_p95": llm[level], "workflow_runtime_p95": runtime[level], "total_runtime": total[level]}
        for level in runtime
    }
    done = sizing.calculate(levels=levels, target_workflow_runtime_s=10, target_users=100, test_gpu_count=8)
    shown = GUIDE.split("The first prints", 1)[1].split("```\n", 2)[1]
    assert shown.rstrip("\n") == "\n".join(calc_outputs.format_calculation(done.calculation))
