"""Imports the result of a load tool: detects the tool, converts its requests, and writes a sweep folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from workbench.core.errors import ConfigError, InputError
from workbench.core.tool_formats import ForeignKind, FormatRegistry
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.load.sweep_journal import StepNote, create_sweep_journal
from workbench.sizing.other_tools.imported_sweep import ImportedSweep, LoadFormat, build_raw_tables, read_file_head
from workbench.sizing.tables import POINTS, QUANTILES, REQUESTS, STEPS, USABLE_VERDICTS


def _foreign(name: str, *marks: str) -> ForeignKind:
    what = f"a result of {name}, which has no start and end of single requests"
    return ForeignKind(what, "measure again with one of these, or with workbench sizing run", marks)


LOAD_TOOLS: FormatRegistry[LoadFormat] = FormatRegistry(
    "workbench.sizing.other_tools",
    {
        "guidellm": "guidellm_results",
        "aiperf": "aiperf_results",
        "inference-perf": "inference_perf_results",
        "vllm": "vllm_results",
        "genai-perf": "genai_perf_results",
        "nat": "nat_results",
    },
    (
        ForeignKind(
            "summary of aiperf without the records of its requests",
            None,
            ('"aiperf_version"',),
            allowed="its folder with profile_export.jsonl",
        ),
        _foreign("SGLang's bench_serving", '"total_output_tokens_retokenized"'),
        _foreign("llmperf", '"inter_token_latency_s"', '"number_total_tokens"'),
        _foreign("k6", '"http_req_duration"'),
        _foreign("locust", "Type,Name,Request Count"),
        _foreign("evalscope", '"Number of concurrency"'),
        _foreign("a summary of genai-perf", '"time_to_first_token"', '"request_throughput"', '"input_config"'),
    ),
)
"""Formats of load tools by name, in the order of detection; the last ones have no times of single requests."""


def read_tool_result(path: str | Path, tool: str | None = None) -> ImportedSweep:
    """Read the result of a load tool as steps with their requests.

    `path`: guidellm's JSON report; aiperf's artifact folder or its `profile_export.jsonl`; inference-perf's report
    folder; the detailed result of `vllm bench serve`; genai-perf's `profile_export.json`; the toolkit calculator's
    `calc_runner_output.json`; or the folder with one of these. Files of guidellm, aiperf and vllm may be gzip files.
    """
    path = Path(path)
    if tool is not None and tool not in LOAD_TOOLS:
        raise ConfigError("unknown load tool", where="--tool", found=tool, allowed=list(LOAD_TOOLS))
    if not path.exists():
        raise InputError("no such file or folder", where=path)
    if path.is_dir():
        reports = (path / one.report_name for one in LOAD_TOOLS.values() if one.report_name is not None)
        path = next((file for file in reports if file.is_file()), path)
    if tool is None:
        tool = LOAD_TOOLS.find_owner(path)
    if tool is None and path.is_dir():
        tool = "aiperf"
    if tool is None:
        head = read_file_head(path)
        tool = LOAD_TOOLS.find_format(head)
        if tool is None:
            LOAD_TOOLS.refuse_foreign(head, path)
            do, allowed = "name the tool with --tool", list(LOAD_TOOLS)
            raise InputError("cannot detect the load tool from the content", where=path, allowed=allowed, do=do)
    return LOAD_TOOLS[tool].read(path)


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
    failed = requests.filter(pl.col("outcome") != "ok")
    for step in steps["step"]:
        kinds = failed.filter(pl.col("step") == step).select("outcome", "status").rows()
        words = [kind if status is None else f"{kind} {status}" for kind, status in kinds]
        journal.record.notes.append(StepNote(step=step, failures=dict(Counter(words))))
    journal.mark_complete()
    if config.users:
        calc_file.write_sweep_calc_file(journal.run.folder, calc_file.build_calc_output(requests, steps, judged))
    usable = bool((judged["verdict"].is_in(USABLE_VERDICTS) & (judged["n_ok"] > 0)).any())
    # Sentence on the imported levels and their loads; `judged` needs columns load and load_unit.
    spans = []
    for unit, name in (("users", "users"), ("1/s", "arrivals per second")):
        loads = [float(load) for load in judged.filter(judged["load_unit"] == unit)["load"]]
        if loads:
            ends = dict.fromkeys(f"{load:.4g}" for load in (min(loads), max(loads)))
            spans.append(f"{' to '.join(ends)} {name}")
    levels = f"{judged.height} level{'s' if judged.height > 1 else ''} of {sweep.tool}, {' and '.join(spans)}"
    result = ImportResult(
        sweep, journal.run.folder, judged, quantiles, f"{'simulated: ' if sweep.simulated else ''}{levels}", usable
    )
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
