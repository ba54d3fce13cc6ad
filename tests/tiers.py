"""Tiers of the suite: what `make test` leaves to `make test-all`, and which area a test belongs to.

A promise is proven once in `make test` and in full breadth in `make test-all`; `tests/README.md` says which promise is
proven where. The breadth is what EXHAUSTIVE lists, by paths below `tests/` or their beginnings, with the test that
shows the same promise in `make test`; and what carries the marker `exhaustive`.

python -m tests.tiers AREA...        arguments of pytest for some areas with the floor, as `make test-area` takes them
python -m tests.tiers --stale FILE   areas that are not known to pass as they are, by the file that `.ci/run` keeps
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# "most": what `make test` runs; "all": everything.
TIER = os.environ.get("WORKBENCH_TESTS", "all")
AREAS = tuple(sorted(path.parent.name for path in (ROOT / "workbench").glob("*/command.py")))
FLOOR = "floor"
# Tiers that stand for breadth or for other people's systems, wherever they are.
EXHAUSTIVE_MARKERS = ("peer", "ml", "env", "slow")

EXHAUSTIVE: dict[str, str] = {
    "lore/test_matrix.py": "all queries of the matrix on both lines of Spark; six of them in lore/test_matrix_quick.py",
    "lore/test_kinds.py": "forty queries of other kinds on both lines; four of them in lore/test_matrix_quick.py",
    "lore/replays/test_planted_settings.py": "twenty settings by the command; lore/replays/test_setting_check.py",
    "lore/test_failing_and_bisect.py": "every kind of failure and of search; one in lore/test_failing_quick.py",
    "lore/test_local_cluster.py": "a master of several processes; local[2] everywhere else",
    "lore/test_guide.py": "all code of the guide; its ten minutes in test_guides.py",
    "browser/test_jupyterlab_panel.py": "the panel in JupyterLab; its parts without a browser in tests/live",
    "test_guides.py::test_the_commands_of_a_page_do_what_it_says[all": "whole pages; their ten minutes otherwise",
    **{
        f"test_guides.py::test_the_commands_of_a_page_do_what_it_says[ten minutes-docs/guide/{page}.md-notebook": (
            "runs of notebooks; `make report` and nbval run each, and the README's commands are run"
        )
        for page in ("sizing", "speedup", "runs", "eventlog")
    },
    "contracts/test_contracts.py::test_the_contract_holds[notebook-tables": "values of all notebooks; nbval runs them",
    "contracts/test_contracts.py::test_the_contract_holds[notebook-records": "run.json of all; its keys in tests/runs",
    "lore/test_study.py::test_a_query_that_fails": "a failing query in the notebook; lore/test_failing_quick.py",
    "scaletest/test_run/test_run_lifecycle.py::test_jobs_whose_pods": "jobs in sequence; jobs at once in the same file",
    "scaletest/local_cluster/test_lifecycle.py::test_a_program_that_hangs": "a hang; an end in the same file",
    "fuzz/test_": "drawn inputs; what they found once is in fuzz/test_found.py",
    "indicators/recommendation/test_ratio_estimates.py::test_the_best_of_120": "many stacks; few in the others",
    "indicators/recommendation/test_ratio_estimates.py::test_rounds_beside": "the same, where the machine drifts",
    "contracts/test_contracts.py::test_kept_notebooks_run": "kept notebooks; their names by core/test_aliases.py",
    "contracts/test_kept.py::test_the_kept_notebook_of_lore": "the same; the guide's kept code runs in test_kept.py",
    "scaletest/test_on_cluster.py::test_where_the_limit_is_raised": "no limit; the default limit is found beside it",
    "sizing/load/test_sweep_runner.py::test_the_service_counts_exactly_as_many_in_flight_as_asked[1000": "256",
    "speedup/recording/test_session_spark.py::test_a_session_that_hangs": "a hang; kills are in the same file",
    "scaletest/local_cluster/test_kai": "the KAI scheduler",
    "scaletest/scenario/test_on_kai.py": "the KAI scheduler",
    "scaletest/simulated_runai/test_with_kai.py": "the KAI scheduler",
    "scaletest/simulated_runai/test_restart.py": "a controller killed at many moments",
    "browser/test_reports.py::test_pointing_at_a_mark_shows_its_row[1": (
        "charts of other kinds; two of eight beside it"
    ),
    "browser/test_reports.py::test_pointing_at_a_mark_shows_its_row[2": "the same",
    "browser/test_reports.py::test_pointing_at_a_mark_shows_its_row[5": "the same",
    "browser/test_reports.py::test_pointing_at_a_mark_shows_its_row[6": "the same",
    "browser/test_reports.py::test_pointing_at_a_mark_shows_its_row[7": "the same",
    "contracts/test_contracts.py::test_the_contract_holds[lore-documents": (
        "in a Spark; the commands run in lore/test_commands.py"
    ),
    "contracts/test_kept.py::test_kept_code_of_the_guide_to_lore": (
        "in a Spark; the other guides' code runs beside it"
    ),
    "eventlog/test_codecs.py::test_a_flipped_bit": (
        "damage at any place; cut logs in the same file, damaged ones in fuzz/test_found.py"
    ),
    "indicators/shipped/test_scripts.py::test_a_scripts_own_defaults": ("each script; their runs in the same file"),
    "indicators/store/test_archive_sync.py::test_writers_of_the_same_session": (
        "one session; four writers in the same file"
    ),
    "lore/dump_reader/test_recorded.py::test_what_is_recorded_anew": (
        "recorded anew; the recorded ones are read beside it"
    ),
    "lore/replays/test_output_verification_fingerprint.py::test_the_same_value_is": (
        "each type; rows of all types beside it"
    ),
    "lore/replays/test_replay_variants_engines.py::TestComet::test_an_operator_that_comet": (
        "an operator left to Spark; Comet's own beside it"
    ),
    "lore/spark_bridge/test_operator_inputs.py::test_a_hashed_column_keeps": ("each type; equal keys in the same file"),
    "lore/test_study.py::test_another_operator": ("a second operator; the first in the same file"),
    "scaletest/compat_runai/test_delta_chain.py::test_volumes_are": ("volumes; the whole chain in the same file"),
    "scaletest/local_cluster/test_lifecycle.py::test_two_clusters": ("two at once; one everywhere else"),
    "scaletest/observation/test_on_cluster.py::test_a_restart_of_the_api_server": (
        "a restart; an expired version in the same file"
    ),
    "sizing/test_commands.py::test_a_verification_that_is_cut_short_is_invalid[0-380": (
        "by a limit of requests; others beside it"
    ),
    "sizing/test_scenarios.py::test_what_one_gpu_count_cannot_show_is_said_and_fails_the_verification[F": (
        "in virtual time; sizing/estimation shows the same"
    ),
    "sizing/test_study.py::test_the_same_seed": ("a second sweep; the frozen one in contracts"),
    "speedup/recording/test_session_spark.py::test_two_engines": (
        "own queries; TPC-DS in recording/test_benchmark_data.py"
    ),
    "test_guides.py::test_the_commands_of_a_page_do_what_it_says[ten minutes-docs/guide/scaletest.md-cluster": (
        "a guide's commands on a cluster; those of the README, and a whole test in scaletest/test_run"
    ),
    "test_guides.py::test_the_commands_of_a_page_do_what_it_says[ten minutes-docs/guide/speedup.md-spark": (
        "a recording of TPC-H; one of TPC-DS in speedup/recording/test_benchmark_data.py"
    ),
    "scaletest/test_on_cluster.py": "a client's limit on a cluster; planted ones in scaletest/analysis",
    "contracts/test_contracts.py::test_the_contract_holds[dumps": (
        "dumps made by both Sparks; recorded ones are read in lore/dump_reader"
    ),
    "browser/test_plan_trees.py": "plan trees; the page check of `make report` looks at every chart",
    "browser/test_hostile.py::test_the_report_of_a_log": "a hostile log; hostile texts in every place beside it",
    "eventlog/test_codecs.py::test_a_log_cut_anywhere_gives_the_facts_up_to_there[": "each codec; zstd of them",
    "eventlog/test_fold.py::test_a_decompression_bomb_takes_bounded_memory[gzip": "zstd beside it",
    "indicators/analysis/test_effects.py::test_copies_of_one_stack": "drawn sessions; planted effects beside it",
    "indicators/kubernetes/test_cluster_session.py::test_an_interrupted": "an interrupt; a whole session beside it",
    "indicators/recommendation/test_metric_mix_chances.py::test_the_arm_in_front": "drawn chances; exact ones there",
    "indicators/shipped/test_answers.py::test_a_wrong_answer_does_not_pass[": "each indicator; sorting and products",
    "indicators/shipped/test_answers.py::test_a_wrong_table_does_not_pass[": "each table; joins of them",
    "indicators/shipped/test_scripts.py::test_a_run_gives_a_valid_document_whose_checks_pass[": (
        "each script; products and joins of them"
    ),
    "indicators/store/test_archive_sync.py::test_a_killed_writer_leaves_a_database": "a kill; four writers beside it",
    "indicators/store/test_archive_sync.py::test_four_writers_at_once_lose_nothing[sqlite": "PostgreSQL beside it",
    "indicators/store/test_sql_queries.py::test_whatever_is_no_single_select_is_refused[postgresql": (
        "SQLite beside it"
    ),
    "lore/jvm/test_inline_hooks.py::test_eclipses_compiler": "another compiler; the JDK's beside it",
    "lore/replays/test_operator_replay.py::test_a_dump_on_another": "another file system; this one's beside it",
    "lore/replays/test_operator_replay.py::test_a_session_that_goes_on": "inside a session; a process beside it",
    "lore/replays/test_output_verification_fingerprint.py::test_any_rows": "drawn rows; rows of all types beside it",
    "lore/replays/test_replay_variants_engines.py::TestComet": "Comet's replay; its runs in speedup/recording",
    **{
        f"lore/test_study.py::{name}": "the notebook's study in a Spark; nbval runs the notebook"
        for name in (
            "test_the_join_of",
            "test_its_tables",
            "test_a_dump_that_is",
            "test_a_changed_dump",
            "test_after_its",
        )
    },
    "lore/bisection/test_output_checks.py::test_one_wrong_row": "in a Spark; searches in lore/test_failing_quick.py",
    **{
        f"lore/test_commands.py::TestInSpark::{name}": "another command or form of output; the first beside it"
        for name in (
            "test_without_strictness_it_is_an_error_when_nothing_at_all_was_dumped[as_json1",
            "test_a_query_that_fails_is_told_with_what_to_do[command1",
        )
    },
    "indicators/analysis/test_effects.py::test_the_same_copies_measured_as_blocks": "blocks; rounds beside them",
    "lore/trust/test_allow_lists.py::test_no_class_of_a_plan": "all classes of plans; gadgets beside it",
    **{
        f"scaletest/local_cluster/test_lifecycle.py::{name}": "its start, a kill and its end beside it"
        for name in (
            "test_an_interrupted_up_leaves_nothing[15",
            "test_a_layout_of",
            "test_a_kwokctl_of",
            "test_a_restart_keeps",
            "test_a_cluster_in_a_folder",
        )
    },
    "scaletest/analysis/test_variants_comparing.py::test_runs_of_one_side": "drawn runs; planted ones beside it",
    "scaletest/compat_runai/test_delta_chain.py::test_training": "training workloads; the whole chain in the same file",
    "scaletest/observation/test_clock_skew.py::test_a_burst": "a burst; a clock ahead beside it",
    "scaletest/observation/test_on_cluster.py::test_a_clock": "a cluster's clock; one over HTTP in test_clock_skew",
    "scaletest/observation/test_sampler_process.py::test_a_signal": "signals; a kill in the same file",
    "scaletest/observation/test_sampler_process.py::test_what_was_so": "later changes; a whole watch in the same file",
    "scaletest/submission/test_throttled_on_a_cluster.py::test_a_server": "an overrun server; a client's limit there",
    "scaletest/test_recorded.py::test_ten_runs_of_the_same": "all pairs of runs; the recorded answers beside it",
    "scaletest/test_run/test_run_lifecycle.py::test_a_killed_test": (
        "a whole test killed; its submission in submission/test_on_a_cluster.py, its sampler in observation"
    ),
    "sizing/estimation/test_capacity_fit.py::test_the_interval_holds": "drawn sweeps; known answers beside it",
    "sizing/estimation/test_sizing_answer.py::test_four_counts": "four counts; a shared resource beside it",
    **{
        f"sizing/test_study.py::{name}": "the notebook's study; nbval runs it on the simulated service"
        for name in ("test_in_virtual_time", "test_several_gpu_counts", "test_steps_that_are_left_out")
    },
    "speedup/attribution/test_operator_explanation.py::test_of_a_recording": "all sessions; some queries beside it",
    "speedup/calibration/test_first_runs.py::test_intervals_of_factors": "drawn pairs; known answers beside it",
    "speedup/recording/test_session_spark.py::test_a_stopped_recorder_leaves_no_process_and_no_half_session[15": (
        "SIGTERM; an interrupt and a kill beside it"
    ),
    "speedup/recording/test_session_spark.py::test_limits": "limits of plans; ties in recording/test_answers.py",
    "speedup/recording/test_session_spark.py::test_one_side": "a failing query; a stand-in in test_recorder.py",
    "indicators/measurement/test_rounds.py::test_killed_again": "many kills; an interrupt and torn files beside it",
    "browser/test_jupyterlab_keys.py": "more of JupyterLab; a notebook in it in test_jupyterlab.py",
    "indicators/measurement/test_sessions.py::test_a_class_of_a_notebook": "by a class; by files beside it",
    "indicators/measurement/test_sessions.py::test_two_processes": "two at once; core/test_locks.py",
    "scaletest/observation/test_sampler_process.py::test_after_a_kill": "a kill; its parent's death beside it",
    "indicators/measurement/test_sessions.py::test_such_a": "taken up with other classes; the session's own beside it",
    "indicators/test_run_command.py::test_several_spec": "several specifications; one beside it",
    "indicators/test_run_command.py::test_a_file_of_stacks": "stacks of a file; on the spot beside it",
    "lore/dumps/test_operator_dump.py::test_a_dump_that_is_killed": "kills: test_faults_kills.py, core/test_files.py",
    "lore/replays/test_operator_replay.py::test_a_bundle": "by the command; replays/test_replay_variants.py",
    "lore/test_commands.py::TestInSpark::test_without_strictness": "nothing dumped; dumps/test_operator_dump.py",
    "scaletest/local_cluster/test_lifecycle.py::test_after_everything": "all killed; a killed start beside it",
    "scaletest/test_run/test_run_lifecycle.py::test_an_abort": "aborted whole; submission/test_abort_criteria.py",
    "sizing/load/test_server_metrics.py::test_what_binds_is_named_in_three_constructed_cases[kv": "the queue there",
    "sizing/load/test_server_metrics.py::test_what_binds_is_named_in_three_constructed_cases[nei": "as above",
    "sizing/load/test_sweep_runner.py::test_levels_close": (
        "with a real service; load/test_level_ladder.py, and to the answer in test_commands.py"
    ),
    "sizing/test_commands.py::test_a_verification_concludes": "by the command; estimation/test_verification.py",
    "sizing/test_commands.py::test_no_verification_sends_a_prompt_that_was_sent_before[False": "with seeds beside it",
    "test_samples.py::test_the_recording_script": "the samples made anew; recording in speedup/recording",
}
# Of these patterns the ones that are needed in `make test` all the same.
KEPT = (
    "fuzz/test_found.py",
    "eventlog/test_codecs.py::test_a_log_cut_anywhere_gives_the_facts_up_to_there[zstd",
    *(
        f"indicators/shipped/test_{name}"
        for name in (
            "answers.py::test_a_wrong_answer_does_not_pass[Sort",
            "answers.py::test_a_wrong_answer_does_not_pass[Matmul---0",
            "answers.py::test_a_wrong_table_does_not_pass[Join",
            "scripts.py::test_a_run_gives_a_valid_document_whose_checks_pass[Matmul",
            "scripts.py::test_a_run_gives_a_valid_document_whose_checks_pass[Join",
        )
    ),
)


def is_exhaustive(node_id: str, markers: set[str]) -> bool:
    """Is a test left to `make test-all`? `node_id` as pytest says it, below `tests/` or not.

    Examples
    --------
    >>> is_exhaustive("tests/lore/test_matrix.py::test_rows", set())
    True
    >>> is_exhaustive("tests/fuzz/test_found.py::test_a", set())
    False
    """
    if markers & {"exhaustive", *EXHAUSTIVE_MARKERS}:
        return True
    place = node_id.removeprefix("tests/")
    return place.startswith(tuple(EXHAUSTIVE)) and not place.startswith(KEPT)


def area_of(path: str | Path) -> str:
    """The area of a test file or of a module with doctests; what is of no area is of the floor.

    Examples
    --------
    >>> area_of("tests/sizing/load/test_sweep_plan.py"), area_of("workbench/core/locks.py")
    ('sizing', 'floor')
    """
    parts = Path(path).parts
    return parts[1] if len(parts) > 2 and parts[1] in AREAS else FLOOR


def list_area_paths(areas: list[str]) -> list[str]:
    """Arguments of pytest for the tests and doctests of some areas and of the floor."""
    if wrong := [name for name in areas if name not in (*AREAS, FLOOR)]:
        raise SystemExit(f"no such area: {', '.join(wrong)}; there are {', '.join((*AREAS, FLOOR))}")
    others = [name for name in AREAS if name not in areas]
    return ["tests", "workbench", *(f"--ignore={top}/{name}" for name in others for top in ("tests", "workbench"))]


def hash_areas() -> dict[str, str]:
    """A hash for each area over what its tests depend on: its code and tests, the floor's, its notebook, the lock."""
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = sorted(listed.splitlines())
    of_area: dict[str, list[str]] = {name: [] for name in (*AREAS, FLOOR)}
    for line in lines:
        path = line.partition("\t")[2]
        if path.startswith(("workbench/", "tests/")):
            of_area[area_of(path)].append(line)
        elif path.startswith(("notebooks/", "data/", "docs/guide/", "requirements.lock", "pyproject.toml")):
            of_area[FLOOR].append(line)
    # eventlog is an area that others import.
    shared = of_area[FLOOR] + of_area["eventlog"]
    return {name: hashlib.sha256("\n".join(shared + own).encode()).hexdigest() for name, own in of_area.items()}


class GreenCache:
    """Areas whose whole suite passed, by hash; a file in the user's cache, beside the control plane's programs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.green = set(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            self.green = set()

    def list_stale_areas(self) -> list[str]:
        """Areas that are not known to pass as they are."""
        return [name for name, found in hash_areas().items() if f"{name} {found}" not in self.green]

    def add(self, areas: list[str]) -> None:
        """Note that these passed."""
        hashes = hash_areas()
        self.green |= {f"{name} {hashes[name]}" for name in areas}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.part")
        part.write_text(json.dumps(sorted(self.green), indent=0), encoding="utf-8")
        part.replace(self.path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stale"]:
        print(" ".join(GreenCache(Path(sys.argv[2])).list_stale_areas()))
    else:
        print("\n".join(list_area_paths(sys.argv[1:])))
