"""`workbench sizing predict`: how many GPUs of which type, before one is owned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.sizing.commands.estimate import Currency, Rate, Users
from workbench.sizing.commands.run import Out, PerHour, SessionLength, convert_sessions

if TYPE_CHECKING:
    from workbench.sizing.config import SweepConfig
    from workbench.sizing.prediction.aisimulate import Predictor
    from workbench.sizing.prediction.gpu_prediction import GpuPrediction
    from workbench.sizing.prediction.time_error import Anchor

Gpus = Annotated[
    str, typer.Option("--gpu", metavar="TYPE,TYPE,…", help="GPU types to compare: h100_sxm,h200_sxm,l40s.")
]
BackendNames = Annotated[
    str, typer.Option("--backend", metavar="NAME,NAME,…", help="Servers to compare: vllm, sglang, trtllm.")
]
Tensors = Annotated[
    str,
    typer.Option("--tensor", metavar="N,N,…", help="GPUs of a replica to try. Default: 1,2,4,8.", show_default=False),
]
AnchorSweep = Annotated[
    str,
    typer.Option(
        "--anchor",
        metavar="TYPE=SWEEP",
        help="Sweep of the same model on this GPU type, whose times correct the predictions.",
    ),
]
AnchorTensor = Annotated[
    int | None,
    typer.Option(help="GPUs of a replica in that sweep. Default: all of its GPUs are one replica.", min=1),
]
Uncorrected = Annotated[
    bool,
    typer.Option("--uncorrected", help="Take AISimulate's times as they are; the interval is that of its error."),
]
Prices = Annotated[
    list[str] | None,
    typer.Option("--gpu-price", metavar="TYPE=PRICE", help="Price of a GPU of a type for an hour. Repeatable."),
]


@take_options_from(
    "workbench.sizing.config:SweepConfig",
    options={
        "model": FieldOption(help="The model: its name on Hugging Face, or a folder with its config.json."),
        "goals": FieldOption(
            "goal", kind=list[str], metavar="GOAL", help="Goal: p95<=2 (seconds) or 'ttft p99<=300ms'. Repeatable."
        ),
        "input_tokens": FieldOption(default=1024.0, help="Mean length of the prompts, in tokens."),
        "input_cv": FieldOption(default=0.5),
        "output_tokens": FieldOption(default=256, help="Mean length of the answers, in tokens."),
        "output_cv": FieldOption(default=0.5),
    },
    groups={
        "Deployments": "model gpus backends tensors",
        "Load": "target_users target_rate users_per_hour session_length goals input_tokens input_cv output_tokens "
        "output_cv turns think_time_s trace seed",
        "Correction": "anchor anchor_tensor uncorrected",
        "Prices": "gpu_price currency",
    },
    fields="model input_tokens input_cv output_tokens output_cv turns think_time_s trace seed goals",
    units={"s": "S"},
)
def predict(
    option_values: OptionValues,
    gpus: Gpus,
    backends: BackendNames = "vllm",
    tensors: Tensors = "1,2,4,8",
    target_users: Users = None,
    target_rate: Rate = None,
    users_per_hour: PerHour = None,
    session_length: SessionLength = None,
    anchor: AnchorSweep = "",
    anchor_tensor: AnchorTensor = None,
    uncorrected: Uncorrected = False,
    gpu_price: Prices = None,
    currency: Currency = "",
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Predict how many GPUs of which type a model needs, before you own one.

    AISimulate of NVIDIA (fetched once, about 200 MB; no network afterwards) runs a ladder of loads for each GPU type
    and size of a replica, from kernels that were measured there; the answer is the largest load within the goals, as of
    a sweep that was measured. The interval is that of the prediction's error: of the services that its makers measured,
    or, with --anchor, of your own sweep of the same model on any GPU type. The upper end is what to plan with.

    Lengths vary by default: with equal ones all users stay in step, and the first token seems several times too slow.

    Exit code 0 with a count, 1 without, 2 for wrong use.

    Example: workbench sizing predict --model Qwen/Qwen3-32B-FP8 --gpu h100_sxm,l40s --target-users 200 --goal "p95<=10"
    """
    from workbench.console import terminal
    from workbench.core.errors import ConfigError
    from workbench.core.field_options import parse_numbers, parse_pairs
    from workbench.core.schema import validate_model
    from workbench.sizing.prediction.aisimulate import Deployment, open_predictor
    from workbench.sizing.prediction.gpu_prediction import predict_gpus
    from workbench.sizing.prediction.time_error import TimeErrors, load_published_errors

    servers = list(dict.fromkeys(name.strip() for name in backends.split(",")))
    if anchor and len(servers) > 1:
        raise ConfigError("a sweep is of one server", where="--anchor", found=backends, do="--backend of that server")
    config, load = _build_load(option_values, target_users, target_rate, users_per_hour, session_length)
    prices = _read_prices(parse_pairs(gpu_price or [], "--gpu-price"))
    deployments = {
        gpu: [
            validate_model(
                Deployment,
                {"model": config.model, "gpu": gpu, "backend": server, "tensor": tensor},
                noun="deployment",
                error_type=ConfigError,
            )
            for server in servers
            for tensor in parse_numbers(tensors, "--tensor")
        ]
        for gpu in dict.fromkeys(name.strip() for name in gpus.split(","))
    }
    with terminal.open_status() as status, open_predictor(status.say) as predictor:
        for candidates in deployments.values():
            for deployment in candidates:
                predictor.check_deployment(deployment)
        correction = _read_anchor(predictor, anchor, anchor_tensor, config.model, servers[0]) if anchor else None

        def find_errors(deployment: Deployment) -> TimeErrors:
            if correction is not None:
                return correction.carry_to(deployment.gpu, predictor.find_architecture(deployment.gpu))
            published = load_published_errors(deployment.backend)
            return published.around_one() if uncorrected else published

        found = predict_gpus(
            predictor,
            deployments,
            config,
            load,
            find_errors,
            prices=prices,
            currency=currency,
            objections=correction.objections if correction is not None else (),
            on_progress=status.show,
        )
    folder = _store_prediction(found, correction, out)
    earlier = _describe_earlier_forecasts()
    finish_command(
        lambda: _format_prediction(found, correction, earlier),
        lambda: _build_document(found, correction, folder) | {"earlier": earlier},
        as_json=as_json,
        is_valid=not found.reasons,
        written=[folder],
        next_commands=[f"workbench forecast add {folder}"],
    )


def _build_load(
    option_values: OptionValues,
    target_users: float | None,
    target_rate: float | None,
    users_per_hour: float | None,
    session_length: float | None,
) -> tuple[SweepConfig, float]:
    """The sweep that is predicted, and the load to serve."""
    from workbench.core.errors import ConfigError
    from workbench.sizing.config import Goal, build_sweep_config
    from workbench.sizing.estimation.sweep_store import choose_target_load

    if not option_values.get("model"):
        raise ConfigError("no model", where="--model", do="add --model NAME, such as Qwen/Qwen3-32B-FP8")
    if not option_values.get("goals"):
        raise ConfigError("no goal to size for", where="--goal", allowed="like p95<=2")
    settings: dict[str, Any] = {**option_values, "goals": [Goal.read(text) for text in option_values["goals"]]}
    settings |= {"protocol": "openai", "url": "http://predicted", "simulated": True}
    if users_per_hour is not None or session_length is not None:
        target_users = convert_sessions(settings, users_per_hour, session_length, target_users)
    target = choose_target_load(target_users, target_rate)
    if settings.get("trace"):
        settings["arrivals"] = "trace"
    elif target.unit == "1/s":
        settings["arrivals"] = "poisson"
    if (target.unit == "1/s") != (settings.get("arrivals", "users") != "users"):
        raise ConfigError("a trace is a rate", where="--trace", do="give --target-rate R instead of --target-users")
    return build_sweep_config(**settings), target.value


def _read_prices(pairs: dict[str, str]) -> dict[str, float]:
    from workbench.core.errors import ConfigError

    prices = {}
    for gpu, text in pairs.items():
        try:
            prices[gpu] = float(text)
        except ValueError:
            prices[gpu] = -1.0
        if not 0 <= prices[gpu] < float("inf"):
            raise ConfigError("not a price", where=f"--gpu-price {gpu}", found=text[:40], allowed="a number, 0 or more")
    return prices


def _read_anchor(predictor: Predictor, anchor: str, tensor: int | None, model: str, backend: str) -> Anchor:
    """The correction of a measured sweep, `TYPE=SWEEP`."""
    from workbench.core.errors import ConfigError
    from workbench.core.samples import copy_sample
    from workbench.sizing.load.sweep_journal import load_sweep_journal
    from workbench.sizing.prediction.aisimulate import Deployment
    from workbench.sizing.prediction.time_error import fit_anchor

    gpu, equals, folder = anchor.partition("=")
    if not equals or not folder:
        raise ConfigError("not a GPU type and a sweep", where="--anchor", found=anchor[:60], allowed="TYPE=SWEEP")
    sweep, config = load_sweep_journal(copy_sample(Path(folder)))
    gpus = tensor or int(sweep.steps["gpus"].max() or 1)  # type: ignore[arg-type]
    deployment = Deployment(model=model, gpu=gpu, backend=backend, tensor=gpus)  # type: ignore[arg-type]
    predictor.check_deployment(deployment)
    return fit_anchor(predictor, deployment, sweep.requests, sweep.steps, config)


def _store_prediction(found: GpuPrediction, correction: Anchor | None, out: Path | None) -> Path:
    """Write the tables into a run folder; its estimate is a forecast of the ledger."""
    from workbench.runs import run_folder
    from workbench.sizing.load.sweep_journal import SIZING_AREA
    from workbench.sizing.tables import ANCHOR_LEVELS, ESTIMATES, POINTS, PREDICTIONS, QUANTILES, REQUESTS, STEPS

    config = found.config.model_dump(mode="json", exclude_defaults=True)
    run = run_folder.start_run(
        SIZING_AREA, out, title="How many GPUs, before one is owned?", config=config, command=format_command_line()
    )
    run.write_table(PREDICTIONS, found.table)
    run.write_table(ESTIMATES, found.estimates)
    if found.chosen is not None and (sweep := found.chosen.sweep) is not None:
        run.write_table(REQUESTS, sweep.requests)
        run.write_table(STEPS, sweep.steps)
        run.write_table(POINTS, sweep.answer.points)
        run.write_table(QUANTILES, sweep.answer.quantiles)
    if correction is not None:
        run.write_table(ANCHOR_LEVELS, correction.levels)
    run.conclude(
        "invalid" if found.reasons else "valid",
        found.reasons,
        found.sentence,
        details=found.details,
        conditions=["predicted, not measured"],
    )
    run.save()
    return run.folder


def _describe_earlier_forecasts() -> str:
    """How forecasts for a named GPU type went, by the ledger; empty without any that was measured."""
    from workbench.forecasts.ledger import default_ledger, read_ledger
    from workbench.forecasts.scores import build_cases

    if not default_ledger().is_file():
        return ""
    ends = [
        (case.forecast.low or 0.0, case.value, case.forecast.high or float("inf"))
        for case in build_cases(read_ledger(default_ledger()))
        if (case.forecast.area, case.forecast.quantity) == ("sizing", "GPUs")
        and " on " in case.forecast.subject
        and case.value is not None
    ]
    n_covered = sum(low <= value <= high for low, value, high in ends)
    return (
        f"Your ledger: {n_covered} of {len(ends)} such forecasts lay in their interval when measured." if ends else ""
    )


def _format_prediction(found: GpuPrediction, correction: Anchor | None, earlier: str) -> str:
    """Answer, GPU types, what the correction rests on."""
    from workbench.report.display import table
    from workbench.sizing.tables import ANCHOR_LEVELS, PREDICTIONS

    lines = [found.sentence, *found.details, *filter(None, [earlier]), "note: predicted, not measured", ""]
    several = ["backend"] if found.table["backend"].n_unique() > 1 else []
    columns = [
        "gpu",
        *several,
        "tensor",
        "capacity",
        "gpus",
        "gpus_low",
        "gpus_high",
        "cost_per_hour",
        "chosen",
        "verdict",
    ]
    lines.append(table(found.table.select(columns), PREDICTIONS, caption="By GPU type and GPUs of a replica").text)
    if correction is not None:
        lines.append(table(correction.levels, ANCHOR_LEVELS, caption="Measured levels and their predictions").text)
    lines += [f"invalid: {reason}" for reason in found.reasons]
    return "\n".join(lines)


def _build_document(found: GpuPrediction, correction: Anchor | None, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "answer": found.sentence,
        "details": found.details,
        "verdict": "invalid" if found.reasons else "valid",
        "reasons": found.reasons,
        "conditions": ["predicted, not measured"],
        "currency": found.currency,
        "predictions": found.table.to_dicts(),
        "estimates": found.estimates.to_dicts(),
        "anchor_levels": None if correction is None else correction.levels.to_dicts(),
    }
