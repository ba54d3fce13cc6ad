from workbench.sizing import slope

levels = [1, 2, 4, 8, 16, 32, 64, 128]
p95_s = [3.0 + 0.5 * level for level in levels]
assert slope.fit_line(levels, p95_s).line.outliers_removed[0] == 128  # the top of a ladder of doubling levels
kept = slope.fit_line(levels, p95_s, slope.FitRules(remove_outliers=False)).line
assert slope.gpus_by_slope(kept, target_s=10, users=100, test_gpus=8).gpus == 100 / 14 * 8

from workbench import sizing

done = sizing.calculate(
    levels={c: {"workflow_runtime_p95": value} for c, value in zip(levels, p95_s)},
    rules=slope.FitRules(remove_outliers=False),
    target_workflow_runtime_s=10,
    target_users=100,
    test_gpu_count=8,
)
times = done.estimates
