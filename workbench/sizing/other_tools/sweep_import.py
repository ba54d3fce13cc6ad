"""Imports the result of a load tool: detects the tool, converts its requests, and writes a sweep folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.load.sweep_journal import StepNote, create_sweep_journal
from workbench.sizing.other_tools.imported_sweep import ImportedSweep, build_raw_tables
from workbench.sizing.tables import POINTS, QUANTILES, REQUESTS, STEPS, USABLE_VERDICTS

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.other_tools.imported_sweep import ImportedSweep

LOAD_TOOLS = ("guidellm", "aiperf", "inference-perf", "vllm", "genai-perf", "nat")
# Default file names of the tools' reports.
REPORT_FILE_NAMES = ("benchmarks.json", "calc_runner_output.json", "profile_export.json")
# Results that hold no times of single requests: what is in them, whose they are.
FOREIGN_RESULTS = (
    ((b'"total_output_tokens_retokenized"',), "SGLang's bench_serving"),
    ((b'"inter_token_latency_s"', b'"number_total_tokens"'), "llmperf"),
    ((b'"http_req_duration"',), "k6"),
    ((b"Type,Name,Request Count",), "locust"),
    ((b'"Number of concurrency"',), "evalscope"),
    ((b'"time_to_first_token"', b'"request_throughput"', b'"input_config"'), "a summary of genai-perf"),
)
_HEAD_BYTES = 1 << 20


def read_tool_result(path: str | Path, tool: str | None = None) -> ImportedSweep:
    """Read the result of a load tool as steps with their requests.

    `path`: guidellm's JSON report; aiperf's artifact folder or its `profile_export.jsonl`; inference-perf's report
    folder; the detailed result of `vllm bench serve`; genai-perf's `profile_export.json`; the toolkit calculator's
    `calc_runner_output.json`; or the folder with one of these. Files of guidellm, aiperf and vllm may be gzip files.
    """
    path = Path(path)
    if tool is not None and tool not in LOAD_TOOLS:
        raise ConfigError("unknown load tool", where="--tool", found=tool, allowed=LOAD_TOOLS)
    if not path.exists():
        raise InputError("no such file or folder", where=path)
    path = (
        next((file for name in REPORT_FILE_NAMES if (file := path / name).is_file()), path) if path.is_dir() else path
    )
    return _find_reader(tool or _detect_tool(path))(path)


def _find_reader(tool: str) -> Callable[[Path], ImportedSweep]:
    from workbench.sizing.other_tools import (
        aiperf_results,
        genai_perf_results,
        guidellm_results,
        inference_perf_results,
        nat_results,
        vllm_results,
    )

    return {
        "guidellm": guidellm_results.read_guidellm,
        "aiperf": aiperf_results.read_aiperf,
        "inference-perf": inference_perf_results.read_inference_perf,
        "vllm": vllm_results.read_vllm,
        "genai-perf": genai_perf_results.read_genai_perf,
        "nat": nat_results.read_nat_results,
    }[tool]


def _detect_tool(path: Path) -> str:
    """Detect the tool from the content."""
    from workbench.sizing.other_tools import aiperf_results, imported_sweep, inference_perf_results

    requests_file = inference_perf_results.REQUESTS_FILE_NAME
    if path.name == requests_file or (path / requests_file).is_file():
        return "inference-perf"
    if path.is_dir() or path.name.startswith(aiperf_results.RECORDS_FILE_NAME):
        return "aiperf"
    head = imported_sweep.read_file_head(path, _HEAD_BYTES)
    if b'"guidellm_version"' in head or b'"generative_benchmark"' in head:
        return "guidellm"
    if b'"request_throughput"' in head and b'"num_prompts"' in head:
        return "vllm"
    if b'"calc_data"' in head or b'"per_concurrency_data"' in head:
        return "nat"
    if b'"experiments"' in head and b'"response_timestamps"' in head:
        return "genai-perf"
    if b'"aiperf_version"' in head:
        raise InputError(
            "summary of aiperf without the records of its requests",
            where=path,
            allowed=f"its folder with {aiperf_results.RECORDS_FILE_NAME}",
        )
    for marks, name in FOREIGN_RESULTS:
        if all(mark in head for mark in marks):
            raise InputError(
                f"a result of {name}, which has no start and end of single requests",
                where=path,
                allowed=LOAD_TOOLS,
                do="measure again with one of these, or with workbench sizing run",
            )
    raise InputError(
        "cannot detect the load tool from the content", where=path, allowed=LOAD_TOOLS, do="name the tool with --tool"
    )


@dataclass(frozen=True)
class ImportResult:
    """Imported sweep: folder, tables and assessment."""

    imported: ImportedSweep
    folder: Path
    points: pl.DataFrame
    quantiles: pl.DataFrame
    answer: str
    usable: bool


def import_sweep(
    path: Path,
    *,
    gpus: int,
    tool: str | None = None,
    goals: Sequence[Goal] = (),
    simulated: bool = False,
    out: Path | None = None,
) -> ImportResult:
    """Import the result of a load tool as a sweep folder.

    `simulated`: Whether the service was a simulator; detected for the simulator of this package.
    """
    sweep = read_tool_result(path, tool)
    sweep.simulated = sweep.simulated or simulated
    requests, steps = build_raw_tables(sweep, gpus)
    loops = steps["loop"].unique().to_list()
    if len(loops) > 1:
        counts = dict(steps["loop"].value_counts().iter_rows())
        sweep.notes.append(
            f"{counts['closed']} levels in users together with {counts['open']} rates: an estimate takes the "
            f"rates with "
            "--target-rate, the users with --target-users, and ignores the others"
        )
    config = _build_config(sweep, steps, gpus, list(goals))
    facts = {"made": False, "tool": sweep.tool, "version": sweep.version}
    journal = create_sweep_journal(config, out=out, keep=True, prompts=facts, command="import")
    assert journal.run is not None
    journal.run.add_input(path)
    judged, quantiles = assess_steps(requests, steps)
    for table, frame in ((REQUESTS, requests), (STEPS, steps), (POINTS, judged), (QUANTILES, quantiles)):
        journal.run.write_table(table, frame)
    journal.requests, journal.steps = requests, steps
    journal.record.notes = [_build_step_note(requests, step) for step in steps["step"]]
    journal.mark_complete()
    if config.users:
        calc_file.write_sweep_calc_file(journal.run.folder, calc_file.build_calc_output(requests, steps, judged))
    usable = bool((judged["verdict"].is_in(USABLE_VERDICTS) & (judged["n_ok"] > 0)).any())
    result = ImportResult(sweep, journal.run.folder, judged, quantiles, _describe_import(sweep, judged), usable)
    reasons = [] if usable else [explain_unusable(judged)]
    journal.run.conclude("invalid" if reasons else "valid", [*reasons, *sweep.notes], result.answer)
    return result


def _build_config(sweep: ImportedSweep, steps: pl.DataFrame, gpus: int, goals: list[Goal]) -> SweepConfig:
    """Settings of the imported sweep; the protocol `function` prevents that it is driven again."""
    settings: dict[str, Any] = {
        "protocol": "function",
        "function": f"imported:{sweep.tool}",
        "gpus": gpus,
        "simulated": sweep.simulated,
        "goals": goals,
    }
    users = sorted(set(steps["users"].drop_nulls()))
    if users and steps["users"].count() >= steps["rate_per_s"].count():
        settings["users"] = users
    else:
        # A trace would need its file; the sweep has only its mean rate.
        arrivals = steps.filter(steps["loop"] == "open")["arrivals"][0]
        settings |= {"arrivals": "poisson" if arrivals == "trace" else arrivals}
        settings |= {"rates": sorted(set(steps["rate_per_s"].drop_nulls()))}
    limits = [limit_s for limit_s in steps["timeout_s"].drop_nulls() if limit_s > 0]
    if limits:
        settings["timeout_s"] = min(86_400.0, max(limits))
    return build_sweep_config(**settings)


def _build_step_note(requests: pl.DataFrame, step: int) -> StepNote:
    """Note with the failures of a step by kind and status.

    `requests`: Table REQUESTS.
    """
    failed = requests.filter((requests["step"] == step) & (requests["outcome"] != "ok"))
    words = [
        kind if status is None else f"{kind} {status}" for kind, status in failed.select("outcome", "status").rows()
    ]
    return StepNote(step=step, failures=dict(Counter(words)))


def _describe_import(sweep: ImportedSweep, judged: pl.DataFrame) -> str:
    """Sentence on the imported levels and their loads; `judged` needs columns load and load_unit."""
    spans = []
    for unit, name in (("users", "users"), ("1/s", "arrivals per second")):
        loads = [float(load) for load in judged.filter(judged["load_unit"] == unit)["load"]]
        if loads:
            ends = dict.fromkeys(f"{load:.4g}" for load in (min(loads), max(loads)))
            spans.append(f"{' to '.join(ends)} {name}")
    levels = f"{judged.height} level{'s' if judged.height > 1 else ''} of {sweep.tool}, {' and '.join(spans)}"
    return f"{'simulated: ' if sweep.simulated else ''}{levels}"


def explain_unusable(judged: pl.DataFrame) -> str:
    """Explain why no level of an imported sweep can be used for sizing. `judged`: `n_kept, n_requests` of table POINTS.

    >>> import polars as pl
    >>> explain_unusable(pl.DataFrame({"n_kept": [5], "n_requests": [8]}))
    'no level is usable for sizing'
    """
    if (judged["n_kept"] == 0).all():
        sent = judged["n_requests"].sum()
        return (
            f"no request is left to judge: of {sent} the warm-up removes the first of each user, and the tail the last"
        )
    return "no level is usable for sizing"
