from workbench import sizing

levels = {c: {"llm_latency_p95": 0.5, "workflow_runtime_p95": 2.0 + 0.3 * c} for c in range(1, 11)}
done = sizing.calculate(levels=levels, target_workflow_runtime_s=8, target_users=400, test_gpu_count=4)
chart = done.charts["concurrency_vs_p95_analysis"].properties(background="white")
times = done.estimates
assert chart.to_dict()["hconcat"][0]["title"]["text"] == "p95 Workflow Runtime ≤ 8 s for 400 users: 80.0 GPUs"
