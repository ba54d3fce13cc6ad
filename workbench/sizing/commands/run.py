"""`workbench sizing run`: a service under one load after the other, every request in a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.sizing.commands.estimate import Price, Rate, Users

if TYPE_CHECKING:
    from workbench.sizing.keeping import Load


def run(
    url: Annotated[str, typer.Option(metavar="URL", help="Where the service is.")] = "",
    protocol: Annotated[
        str,
        typer.Option(help="nat: POST /generate/full; openai: chat completions; http: any JSON by template."),
    ] = "nat",
    function: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="An async callable to drive instead of a URL.")
    ] = "",
    target_confirm: Annotated[
        str, typer.Option(metavar="HOST", help="The URL's host once more: needed unless it is this machine.")
    ] = "",
    header_env: Annotated[
        list[str] | None,
        typer.Option(metavar="HEADER=VARIABLE", help="Header from an environment variable; repeat for several."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs that serve it.", show_default="1")] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="The service is a simulator; all results say so.")] = (
        False
    ),
    model: Annotated[str, typer.Option(help="Name of the model (openai).")] = "",
    output_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens (openai).")] = None,
    extra_body: Annotated[
        str | None, typer.Option(metavar="JSON", help="More fields of the request, such as '{\"temperature\": 0}'.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="HTTP method (http).", show_default="POST")] = None,
    body: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="Body with {prompt} in its texts (http).")
    ] = None,
    answer_at: Annotated[str | None, typer.Option(help="Path of the answer, such as choices.0.text (http).")] = None,
    input_tokens_at: Annotated[str | None, typer.Option(help="Path of the prompt's tokens (http).")] = None,
    output_tokens_at: Annotated[str | None, typer.Option(help="Path of the answer's tokens (http).")] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(metavar="GOAL", help="p95<=2 (s), 'ttft p99<=300ms'; levels close in on it. Repeat for several."),
    ] = None,
    users: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Levels: concurrent requests, or users with --think-time.")
    ] = None,
    rates: Annotated[
        str | None, typer.Option(metavar="R,R,…", help="Levels: arrivals a second, with --arrivals.")
    ] = None,
    arrivals: Annotated[
        str | None, typer.Option(help="users; or open loop: poisson, constant, trace.", show_default="users")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Times of arrivals, a number a line, in seconds.")] = None,
    think_time: Annotated[
        float | None, typer.Option(metavar="S", help="Mean think time of a user between requests, in seconds.")
    ] = None,
    ramp: Annotated[float | None, typer.Option(metavar="S", help="Time over which users begin, in seconds.")] = None,
    samples: Annotated[int | None, typer.Option(help="Kept requests that a step needs.", show_default="200")] = None,
    most_samples: Annotated[
        int | None, typer.Option(help="Kept requests after which a step ends anyway.", show_default="1000")
    ] = None,
    tight: Annotated[
        float | None, typer.Option(help="A step ends when its p95 is known to this share.", show_default="0.05")
    ] = None,
    max_step: Annotated[
        float | None, typer.Option(metavar="S", help="Longest step, in seconds.", show_default="120")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Time limit of a request, in seconds.", show_default="300")
    ] = None,
    max_error_ratio: Annotated[
        float | None, typer.Option(help="Share of failures above which a point is invalid.", show_default="0.01")
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="How often a failed request is sent again.", show_default="0")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Client processes that share the load.", show_default="1")
    ] = None,
    max_requests: Annotated[int | None, typer.Option(help="Requests of the whole sweep at most.")] = None,
    max_duration: Annotated[
        float | None, typer.Option(metavar="S", help="Time of the whole sweep at most, in seconds.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens at most, of prompts and answers.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Cost at most, in the currency of the prices.")] = None,
    price_request: Annotated[float | None, typer.Option(help="Price of a request.")] = None,
    price_million_input: Annotated[float | None, typer.Option(help="Price of a million prompt tokens.")] = None,
    price_million_output: Annotated[float | None, typer.Option(help="Price of a million answer tokens.")] = None,
    prompts: Annotated[Path | None, typer.Option(help=".txt, .jsonl, .json or .csv; made prompts without it.")] = None,
    prompt_key: Annotated[str | None, typer.Option(help="Field or column that holds the prompt.")] = None,
    input_tokens: Annotated[
        float | None, typer.Option(help="Mean length of made prompts, about, in tokens.", show_default="400")
    ] = None,
    input_cv: Annotated[float | None, typer.Option(help="Spread of their lengths over the mean.")] = None,
    unique_prefix: Annotated[
        bool, typer.Option("--unique-prefix", help="Begin each prompt differently, to defeat prefix caches.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Start of all random numbers.", show_default="0")] = None,
    target_users: Users = None,
    target_rate: Rate = None,
    gpu_price: Price = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Drive the predicted load at the end: did every goal hold?")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder below which the sweep gets its own.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with the sweep in this folder; limits may be given anew.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Drive a service at one level after the other until each is known; write every request into a table.

    Users are concurrent requests unless --think-time is given. A step ends when its p95 is known well enough; the
    start of it that is not yet steady is dropped. Each step is written as it ends: Ctrl-C keeps them, --resume goes
    on. Retries, timeouts and failures are counted by kind and never taken for answers.

    With --target-users (or --target-rate) it goes on to the answer: how many GPUs, with an interval; --verify then
    drives the service at the predicted load of its GPUs.

    Exit code 0 when all points are valid, 1 when some are not (their reasons are told) or a limit ended it; with a
    target, when there is an answer (and it held), else 1. 130 after Ctrl-C.

    Example: workbench sizing run --url http://127.0.0.1:8000 --goal "p95<=2" --target-users 150 --verify
    """
    from workbench.errors import ConfigError
    from workbench.sizing import keeping

    given = {
        "url": url or None,
        "protocol": "function" if function else protocol,
        "function": function or None,
        "target_confirm": target_confirm or None,
        "header_env": _pairs(header_env or []) or None,
        "gpus": gpus,
        "simulated": simulated or None,
        "model": model or None,
        "output_tokens": output_tokens,
        "extra_body": None if extra_body is None else _json(extra_body, "--extra-body"),
        "method": None if method is None else method.upper(),
        "body": None if body is None else _json(body, "--body"),
        "answer_at": answer_at,
        "input_tokens_at": input_tokens_at,
        "output_tokens_at": output_tokens_at,
        "users": None if users is None else _numbers(users, "--users", int),
        "rates": None if rates is None else _numbers(rates, "--rates", float),
        "arrivals": arrivals,
        "trace": trace,
        "think_time_s": think_time,
        "ramp_s": ramp,
        "least_samples": samples,
        "most_samples": most_samples if most_samples is not None or samples is None else max(1000, samples),
        "tight": tight,
        "max_step_s": max_step,
        "timeout_s": timeout,
        "max_error_ratio": max_error_ratio,
        "retries": retries,
        "processes": processes,
        "max_requests": max_requests,
        "max_duration_s": max_duration,
        "max_tokens": max_tokens,
        "max_cost": max_cost,
        "price_request": price_request,
        "price_million_input": price_million_input,
        "price_million_output": price_million_output,
        "prompts": prompts,
        "prompt_key": prompt_key,
        "input_tokens": input_tokens,
        "input_cv": input_cv,
        "unique_prefix": unique_prefix or None,
        "seed": seed,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    if goal:
        from workbench.sizing.config import Goal

        settings["goals"] = [Goal.read(text) for text in goal]
    if resume is None and not (url or function):
        raise ConfigError(
            "nothing to drive", where="--url", do="give --url, or --function MODULE:NAME; or --resume a sweep"
        )
    if resume is not None and not function:
        del settings["protocol"]
    wanted = None
    if target_users is not None or target_rate is not None:
        wanted = keeping.load_of(target_users, target_rate)
    elif verify or gpu_price is not None:
        raise ConfigError("nothing says what is to be served", do="give --target-users N or --target-rate R, too")
    if wanted is not None and wanted.unit != ("users" if arrivals in (None, "users") else "1/s") and resume is None:
        raise ConfigError("the target is of another kind than the levels", found=wanted.unit, where="--arrivals")
    if wanted is not None and not goal and resume is None:
        raise ConfigError("no goal: nothing says how many are too many", where="--goal", allowed="like p95<=2")
    _drive(settings, out, resume, as_json, _Question(wanted, gpu_price, verify))


@dataclass(frozen=True)
class _Question:
    """What is asked beyond the points."""

    load: Load | None
    gpu_price: float | None
    verify: bool


def _drive(settings: dict[str, Any], out: Path | None, resume: Path | None, as_json: bool, asked: _Question) -> None:
    import json
    import shlex
    import sys

    from workbench.sizing import checking, keeping
    from workbench.sizing.driving import report
    from workbench.sizing.driving.progress import watcher
    from workbench.sizing.driving.sweep import run as sweep
    from workbench.terminal import say

    command = "workbench " + shlex.join(sys.argv[1:])
    answer = None
    with watcher() as told:
        found = sweep(out=out, keep=True, resume=resume, watcher=told, command=command, needs_listener=True, **settings)
        ended = found.ended
        if asked.load is not None and found.ended == "finished" and found.folder is not None:
            answer, ended = checking.answered(
                found.folder, asked.load, price=asked.gpu_price, verified=asked.verify, watcher=told
            )
    folder = found.folder or Path()
    if as_json:
        document = json.loads(report.as_json(found))
        document["answer"] = None if answer is None else json.loads(keeping.as_json(answer, folder))
        typer.echo(json.dumps(document, indent=1))
    else:
        say(report.text(found))
        if answer is not None:
            say("\n" + keeping.text(answer, folder))
    raise typer.Exit(130 if ended == "interrupted" else 1 if (found if answer is None else answer).reasons else 0)


def _pairs(texts: list[str]) -> dict[str, str]:
    from workbench.errors import ConfigError

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            # What stands there may be a secret that was meant for the header: it is not repeated.
            raise ConfigError("not a header and a variable", where="--header-env", allowed="HEADER=VARIABLE")
        pairs[name.strip()] = value.strip()
    return pairs


def _numbers(text: str, where: str, kind: type[int] | type[float]) -> list[Any]:
    from workbench.errors import ConfigError

    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError("not a list of numbers", where=where, found=text[:60], allowed="like 1,2,4,8") from error


def _json(text: str, where: str) -> Any:
    import json

    from workbench.errors import ConfigError

    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise ConfigError("cannot read the file", where=where, found=text[1:80]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("not JSON", where=where, found=str(error)[:80]) from error
