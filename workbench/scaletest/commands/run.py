"""`workbench scaletest run`: run one test, several variants in turn, or resume either."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from workbench.console.finish import JsonFlag, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.scaletest.commands import ClusterOption, ConfirmOption, ContextOption, KubeconfigOption

if TYPE_CHECKING:
    from workbench.scaletest.scenario.scenario_file import Scenario
    from workbench.scaletest.test_run.run_options import RunOptions, RunResult
    from workbench.scaletest.test_run.variant_turns import VariantTurns


def _parse_words(text: str, flag: str) -> tuple[str, ...]:
    from workbench.scaletest.submission.object_creation import parse_command

    return tuple(parse_command(text, flag))


@take_options_from(
    "workbench.scaletest.test_run.run_options:RunOptions",
    options={
        "submit_with": FieldOption(default="api"),
        "submit_command": FieldOption(parse=_parse_words, metavar="WORDS"),
        "kubectl": FieldOption(kind=Path, parse=lambda path, _: str(path), metavar="FILE", show_default="on PATH"),
        "processes": FieldOption(metavar="P"),
        "cleanup": FieldOption(
            "no_cleanup",
            kind=bool,
            default=False,
            parse=lambda is_kept, _: not is_kept,
            help="Leave the run's objects in the cluster.",
        ),
    },
    units={"s": "S"},
    groups={"Cluster": "cluster context kubeconfig confirm"},
)
def run(
    settings: OptionValues,
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO", help="YAML; `workbench scaletest plan --example` prints one.")
    ] = None,
    cluster: ClusterOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    confirm: ConfirmOption = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            "--schedulers",
            metavar="NAME[,NAME]",
            help="default, gang, kai, second, any schedulerName, or a recipe's path; several are compared.",
            show_default="all of the scenario's",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Runs of each of several schedulers, in turn.", min=1, max=100, show_default="5"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the new run folder.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Resume the run in this folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a test: submit a scenario's workloads on schedule, watch them, and report where the time goes.

    The cluster is confirmed and checked first; nothing is sent if a check refuses. The run's objects are deleted at the
    end, unless the run was interrupted or aborted.

    The first Ctrl-C stops submission and waits for what is in progress; the second ends the run. What was measured is
    kept, and --resume continues, even after a kill: each workload is created exactly once. During cleanup, Ctrl-C only
    ends the cleanup.

    With several schedulers (all that the scenario names, unless --scheduler is given) the same plan runs on each,
    --repeat times in turn (A B B A …), and the cluster is emptied in between; `workbench scaletest compare` reads the
    folder. All variants are checked before the first run.

    Exit code 0 when the run is valid, 1 when it is not (the reasons are printed), 2 when it did not start, 130 after
    Ctrl-C.

    Example: workbench scaletest run sample:first-test --cluster local
    """
    from workbench.console.finish import print_json
    from workbench.core.errors import ConfigError
    from workbench.scaletest.test_run.run_options import print_result
    from workbench.scaletest.test_run.variant_turns import VariantTurns

    if resume is None and scenario is None:
        raise ConfigError(
            "no scenario was given", where="SCENARIO", do="workbench scaletest plan --example > scenario.yaml"
        )
    where = {"cluster": cluster, "kubeconfig": kubeconfig, "context": context}
    result: RunResult | VariantTurns
    if scenario is not None and resume is None:
        loaded_scenario, names = _parse_schedulers(scheduler, scenario)
        result = _start_runs(loaded_scenario, where, confirm, names, repeat, settings, out)
    else:
        own = {"SCENARIO": scenario, "--scheduler": scheduler, "--repeat": repeat, "--out": out}
        fixed = [name for name, value in own.items() if value is not None]
        if fixed := [*fixed, *(settings.flags[field] for field in settings if field != "cleanup")]:
            raise ConfigError(
                "a resumed run keeps the options that it was started with",
                where="--resume",
                found=fixed,
                do="remove these options",
            )
        assert resume is not None
        result = _resume_run(resume, where, confirm, settings.get("cleanup"))
    if isinstance(result, VariantTurns):
        _print_turns(result, as_json)
    if as_json:
        print_json(result.to_dict())
    else:
        print_result(result)
    raise typer.Exit(result.exit_code)


def _start_runs(
    scenario: Scenario,
    where: dict[str, Any],
    confirm: str | None,
    schedulers: tuple[str, ...],
    repeat: int | None,
    settings: OptionValues,
    out: Path | None,
) -> RunResult | VariantTurns:
    """Start one run for a single scheduler, or turns of runs for several.

    `where` are the options that name the cluster.
    """
    from workbench.core.errors import ConfigError
    from workbench.scaletest.test_run import variant_turns
    from workbench.scaletest.test_run.run_console import open_watcher
    from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
    from workbench.scaletest.test_run.run_options import RunOptions, find_cluster_access

    if len(schedulers) == 1 and repeat is not None:
        raise ConfigError("--repeat needs several schedulers", where="--repeat", do="name two: --scheduler A,B")
    if len(schedulers) > 1 and settings.get("cleanup") is False:
        raise ConfigError("each turn starts on an emptied cluster", where="--no-cleanup", do="remove this option")
    options: RunOptions = settings.build_model(RunOptions)
    access = find_cluster_access(**where)
    with open_watcher() as watcher:
        context = RunContext(access, options, confirm, format_command_line(), watcher)
        if len(schedulers) > 1:
            times = variant_turns.DEFAULT_REPEAT if repeat is None else repeat
            return variant_turns.run_variants(scenario, context, schedulers, repeat=times, out=out)
        return run_test(scenario, context, scheduler=schedulers[0], out=out)


def _resume_run(
    folder: Path, where: dict[str, Any], confirm: str | None, cleanup: bool | None
) -> RunResult | VariantTurns:
    """Resume a run, or the turns of several schedulers where the folder holds a session of them."""
    from workbench.core.errors import ConfigError
    from workbench.scaletest.analysis import variants
    from workbench.scaletest.test_run import variant_turns
    from workbench.scaletest.test_run.run_console import open_watcher
    from workbench.scaletest.test_run.run_lifecycle import resume_test
    from workbench.scaletest.test_run.run_options import find_cluster_access

    access = find_cluster_access(**where) if any(value is not None for value in where.values()) else None
    with open_watcher() as watcher:
        if (folder / variants.SESSION_FILE).is_file():
            if cleanup is not None:
                raise ConfigError(
                    "the cluster is emptied between the turns of several schedulers",
                    where="--no-cleanup",
                    do="remove this option",
                )
            return variant_turns.resume_variants(
                folder, access, confirmed=confirm, watcher=watcher, command=format_command_line()
            )
        return resume_test(folder, access, confirmed=confirm, cleanup=cleanup, watcher=watcher)


def _print_turns(turns: VariantTurns, as_json: bool) -> NoReturn:
    from workbench.console.finish import print_json
    from workbench.console.terminal import print_text

    if as_json:
        invalid = [run.folder.name for run in turns.invalid]
        results = [result.to_dict() for result in turns.results]
        print_json({"folder": turns.folder, "left": turns.left, "invalid": invalid, "runs": results})
        raise typer.Exit(turns.exit_code)
    for result in turns.results:
        print_text(f"{result.scheduler:<20}{result.verdict:<9}{result.answer}")
        for reason in result.reasons:
            print_text(f"  because {reason}")
    new = {result.folder for result in turns.results}
    for run in turns.invalid:
        if run.folder not in new:
            print_text(f"{run.folder.name}, an earlier turn, is invalid: {'; '.join(run.record['reasons'])}")
    if turns.left:
        print_text(f"{turns.left} turn(s) are left: workbench scaletest run --resume {turns.folder}")
    print_text(f"compare: workbench scaletest compare {turns.folder}")
    raise typer.Exit(turns.exit_code)


def _parse_schedulers(text: str | None, scenario: Path) -> tuple[Scenario, tuple[str, ...]]:
    """Load the scenario and choose its schedulers: those given, or all that it names.

    Recipes that are given become part of the scenario.
    """
    from workbench.core.errors import ConfigError
    from workbench.scaletest.scenario import scenario_file
    from workbench.scaletest.scenario.scheduler_recipes import resolve_schedulers

    loaded_scenario = scenario_file.load_scenario(scenario)
    if text is None:
        return loaded_scenario, loaded_scenario.schedulers
    names, recipes = resolve_schedulers(text.split(","))
    recipe_names = {recipe.name for recipe in loaded_scenario.recipes}
    if twice := [recipe.name for recipe in recipes if recipe.name in recipe_names]:
        raise ConfigError("the scenario has a recipe of this name", where="--scheduler", found=twice)
    return loaded_scenario.model_copy(update={"recipes": (*loaded_scenario.recipes, *recipes)}), names
