from workbench import sizing

levels = {
    concurrency: {"llm_latency_p95": 0.9 + 0.14 * concurrency, "workflow_runtime_p95": 3.0 + 0.66 * concurrency}
    for concurrency in (1, 2, 4, 8, 16, 32)
}
done = sizing.calculate(levels=levels, target_workflow_runtime_s=10, target_users=100, test_gpu_count=8)

times = done.levels  # a polars table: one row a level
estimate = done.estimates.row(0, named=True)
assert round(estimate["gpus"], 1) == 75.4
