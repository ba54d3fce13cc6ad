"""Measure how many workloads per second a cluster schedules, and where the time goes.

Flow: scenario → plan → journal (submission) and observations (sampler) → raw tables → milestones → rates,
bottlenecks, time breakdown

Map, from what goes in to what comes out:

    scaletest.scenario.scenario_file.load_scenario(file) -> Scenario
    scaletest.scenario.workload_plan.draw_plan(Scenario) -> Plan
    scaletest.test_run.run_lifecycle.run_test(Scenario, RunContext) -> RunResult, with the raw tables in its folder
    scaletest.analysis.run_analysis.conclude_run(folder) -> Analysis
    scaletest.analysis.variants.read_variants(folder) -> Variants
    scaletest.analysis.variants.build_league_table(Variants) -> DataFrame
    scaletest.study.build_study(NotebookConfig, Run) -> Study
"""

__all__ = ["charts", "config", "study", "tables"]
