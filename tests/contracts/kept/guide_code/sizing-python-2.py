import tempfile
from pathlib import Path

from workbench import sizing
from workbench.sizing.calculator import calcfile

folder = Path(tempfile.mkdtemp())
metrics = {c: calcfile.SizingMetrics(llm_latency_p95=0.2 * c, workflow_runtime_p95=1.0 + c) for c in (1, 2, 4)}
job = calcfile.CalcOutput(calc_data={c: calcfile.LevelData(sizing_metrics=level) for c, level in metrics.items()})
calcfile.write(folder / "online" / "job_1" / calcfile.NAME, job)

done = sizing.calculate(folder, offline=True, write=False, target_llm_latency_s=1.0, target_users=50, test_gpu_count=2)
times = done.fits  # slope in s per user, intercept in s, R², outliers; or why there is no line
assert round(done.output.gpu_estimates.gpu_estimate_by_llm_latency, 9) == 20.0
