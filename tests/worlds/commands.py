"""Pairs of commands of known truth, really run; and recorded rounds of commands and scripts of known traits.

python -m tests.worlds.commands 1000 --show 10          (recorded rounds, judged in memory)
python -m tests.worlds.commands 60 --live --show 10     (commands that really run, about 4 s each)
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.indicators.analysis.effects import Comparison, compare_session
from workbench.indicators.analysis.observations import build_observations
from workbench.indicators.contract.indicator import Case
from workbench.indicators.contract.script_declaration import ScriptDeclaration, build_script_case, infer_fields
from workbench.indicators.measurement import session_plan, sessions
from workbench.indicators.measurement.run_messages import RunEnd
from workbench.indicators.measurement.session_config import SessionConfig, session_config
from workbench.indicators.measurement.session_plan import build_run_document
from workbench.indicators.measurement.session_report import format_session
from workbench.indicators.measurement.sessions import SessionOutcome
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.measurement.timed_programs import Program
from workbench.indicators.store.archive import CONTROL, Arm, Pressure, inspection_id
from workbench.stats.verdicts import FASTER, SAME, SLOWER

# By chance one interval in twenty leaves its truth outside: wrong is what is further off than that explains.
INTERVAL_ROOM = 1.6
FAILED_SHARE = 0.1
LAST_LINE = "boom: no such table"
TELLS = {
    "left": r"left \d+ process",
    "differs": r"(?i)differ|something else|always the same",
    "fails": rf"exit code 3: {LAST_LINE}",
    "fails_rarely": rf"exit code 3: {LAST_LINE}",
    "fails_often": rf"exit code 3: {LAST_LINE}",
    "varies": r"from run to run",
    "silent": r"prints anything",
    "bash": r"--shell",
    "unknown_program": r"not found",
}
"""What the report of a world with this trait must say."""
SPOILS = {"left", "differs", "fails", "fails_often", "unknown_program"}
"""Traits with which the question is not answered."""


@dataclass(frozen=True)
class Truth:
    """Truth of a world: the other command takes `ratio` times as long as the baseline does."""

    seed: int
    ratio: float
    noise: float
    rounds: int
    traits: frozenset[str] = frozenset()
    wrong_side: str = "new"
    accepts: bool = False


@dataclass
class Judged:
    """What was said of a world: `wrong` in silence, or `refused` although the world is supported."""

    seed: int
    traits: tuple[str, ...]
    wrong: list[str] = field(default_factory=list)
    refused: str = ""
    text: str = ""


def judge_world(seed: int) -> Judged:
    """Draw a recorded session, and hold what is said of it against its truth."""
    draw = random.Random(seed)
    truth = draw_truth(seed, draw)
    outcome = SessionOutcome(Path("/RUN"), compare_session(_record_rounds(truth, draw)))
    return hold_against(truth, outcome.compared, format_session(outcome))


def draw_truth(seed: int, draw: random.Random) -> Truth:
    """Draw what is true."""
    traits = {name for name, chance in _CHANCES.items() if draw.random() < chance}
    for kept, dropped in (("fails", {"fails_rarely", "fails_often", "left"}), ("fails_often", {"fails_rarely"})):
        traits -= dropped if kept in traits else set()
    if "varies" in traits:
        traits -= {"rounding", "silent"}
    if "silent" in traits and "program" not in traits:
        traits -= {"silent"}
    if {"silent", "differs"} <= traits:
        traits -= {"silent"}
    return Truth(
        seed,
        ratio=draw.choice([1.0, 1.0, 1.05, 1.3, 2.0, 5.0, 0.2, 0.5, 0.8]),
        noise=draw.choice([0.003, 0.01, 0.05]),
        rounds=draw.choice([3, 6, 10, 20, 30]),
        traits=frozenset(traits),
        wrong_side=draw.choice(["new", "new", "old"]),
        accepts="differs" in traits and draw.random() < 0.3,
    )


_CHANCES = {
    "program": 0.6,
    "left": 0.15,
    "left_sometimes": 0.3,
    "differs": 0.2,
    "differs_sometimes": 0.3,
    "fails": 0.06,
    "fails_often": 0.08,
    "fails_rarely": 0.08,
    "varies": 0.12,
    "rounding": 0.15,
    "drifts": 0.1,
    "silent": 0.1,
    "versioned": 0.15,
}


def _record_rounds(truth: Truth, draw: random.Random) -> Any:
    """Observations of a session as the product records it, of what such commands or scripts print."""
    arms = [Arm(name=name, stack=name, stack_key=name) for name in ("old", "new")]
    control = Arm(name=CONTROL, stack="old", stack_key="old", copy_number=1)
    variants = [Variant(arm, sys.executable, {}) for arm in (*arms, control)]
    settings: dict[str, Any] = {"rounds": (truth.rounds,), "seed": truth.seed}
    if truth.accepts and "output" in SessionConfig.model_fields:
        settings["output"] = "any"
    config = session_config(**settings)
    case = _build_case(truth, draw)
    session = session_plan.build_session_plan("a-session", config, variants, [case])
    session = session.model_copy(update={"rounds_done": truth.rounds, "stop_reason": "all rounds"})
    found, level = [], 0.0
    for slot in session_plan.order_runs(session):
        if "drifts" in truth.traits and slot.round == truth.rounds // 2:
            level = 0.4
        elapsed_ms = 20 * math.exp(level + draw.gauss(0, truth.noise))
        elapsed_ms *= truth.ratio if slot.arm == "new" else 1.0
        arm = session.get_arm(slot.arm)
        ended = _end_run(truth, draw, slot.arm, slot.round, elapsed_ms)
        document = build_run_document(session, slot, arm, case, ended, Pressure(), Pressure())
        found.append((inspection_id(session.session_id, arm.name, slot.case), slot.round, document))
    return build_observations(session, found)


def _is_of(truth: Truth, arm: str) -> bool:
    """Whether the arm is the one with the traits; the control is the baseline once more."""
    return ("old" if arm == CONTROL else arm) == truth.wrong_side


def _build_case(truth: Truth, draw: random.Random) -> Case:
    if "program" in truth.traits:
        return Case.from_parameters(Program)
    document = json.loads(_print_document(truth, draw, "old", 0, 20.0, right=True))
    declaration = ScriptDeclaration(
        name=document["name"], sources={"script.py": "pass\n"}, fields=infer_fields(document, {})
    )
    return build_script_case(declaration)


def _end_run(truth: Truth, draw: random.Random, arm: str, number: int, elapsed_ms: float) -> RunEnd:
    """How a run of the arm ended."""
    traits, here = truth.traits, _is_of(truth, arm)
    facts: dict[str, Any] = {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:00:01+00:00"}
    facts |= {"duration_s": 0.1, "cpu_s": 0.05, "isolation": {"network": "isolated"}}
    often = "fails_often" in traits and (number % 3 == 1)
    rarely = "fails_rarely" in traits and number == 12
    if here and ("fails" in traits or often or rarely):
        return RunEnd("exit code", "exit code 3", 3, stderr=f"trying\n{LAST_LINE}\n".encode(), **facts)
    left = here and "left" in traits and ("left_sometimes" not in traits or number % 2 == 0)
    wrong = here and "differs" in traits and ("differs_sometimes" not in traits or number % 2 == 0)
    raw = _print_document(truth, draw, arm, number, elapsed_ms, right=not wrong)
    return RunEnd("exited", "", 0, stdout=raw, left_behind=int(left), **facts)


def _print_document(
    truth: Truth, draw: random.Random, arm: str, number: int, elapsed_ms: float, *, right: bool
) -> bytes:
    """The document that a run prints."""
    text = "" if "silent" in truth.traits else "".join(f"line {place}\n" for place in range(100 if right else 40))
    if "varies" in truth.traits:
        text = f"{draw.randrange(10**9, 10**10)}\n{text}"
    if "program" in truth.traits:
        results: dict[str, Any] = {
            "elapsed_ms": elapsed_ms,
            "peak_mib": 9.0 * math.exp(draw.gauss(0, 0.002)),
            "output_bytes": len(text),
        }
        results |= {"tree_mib": results["peak_mib"], "left_running": 0, "shell_error": ""}
        checks = {"output_sha256": _digest(text), "ended_with": 0}
        checks |= {"lines_sha256": _digest("\n".join(sorted(text.split("\n"))))}
        fields = Program.model_fields
        document = {
            "name": "Program",
            "@parameters": {},
            "@result": {name: value for name, value in results.items() if name in fields},
            "@checks": {name: value for name, value in checks.items() if name in fields},
        }
        return json.dumps(document).encode()
    answer: dict[str, Any] = {"answer": len(text) * 1.1, "digest": _digest(text), "rows": text.count("\n")}
    if "rounding" in truth.traits:
        answer["answer"] *= 1 + draw.gauss(0, 1e-13)
    if "versioned" in truth.traits:
        answer["library_version"] = f"1.{len(arm)}.0" if arm == "new" else "1.0.0"
    if "varies" in truth.traits:
        answer["answer"] = 110.0 if right else 44.0
        answer["rows"] = 100 if right else 40
    return json.dumps({"name": "Work", "@parameters": {}, "@result": {"elapsed_ms": elapsed_ms, **answer}}).encode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hold_against(truth: Truth, compared: Comparison, text: str) -> Judged:
    """Hold what is said of a session against its truth."""
    judged = Judged(truth.seed, tuple(sorted(truth.traits)), text=text)
    traits = _list_active_traits(truth)
    for trait in sorted(traits & TELLS.keys()):
        if not re.search(TELLS[trait], text):
            judged.wrong.append(f"{trait} is not told")
    spoiled = traits & SPOILS
    if compared.valid and spoiled:
        judged.wrong.append(f"valid with {', '.join(sorted(spoiled))}")
    rows = compared.effects.filter(
        (compared.effects["arm"] == "new") & compared.effects["metric"].str.contains("elap|Work")
    )
    for row in rows.iter_rows(named=True):
        judged.wrong += _judge_row(truth, row, spoiled)
    first = text.splitlines()[0]
    if (
        spoiled
        and re.search(r"new.*(faster|slower) than|times the baseline's speed", first)
        and not re.search("|".join(TELLS[name] for name in spoiled), first)
    ):
        judged.wrong.append("the answer names a winner first")
    if _is_supported(truth) and not compared.valid:
        judged.refused = compared.judgement["reasons"][0][0]
    return judged


def _list_active_traits(truth: Truth) -> set[str]:
    """Traits that can be seen in the rounds there are."""
    traits = set(truth.traits)
    if truth.rounds <= 12:
        traits -= {"fails_rarely"}
    if truth.accepts:
        traits -= {"differs"}
    if "fails" in traits:
        traits -= {"differs", "varies", "silent"}
    if "fails_often" in traits and "differs_sometimes" in traits and truth.rounds <= 3:
        traits -= {"differs"} if "differs" in traits and truth.rounds < 3 else set()
    return traits


def _judge_row(truth: Truth, row: dict[str, Any], spoiled: set[str]) -> list[str]:
    """What is wrong about the verdict on time."""
    if row["verdict"] in (FASTER, SLOWER, SAME) and spoiled & {"left", "fails", "unknown_program"}:
        return [f"{row['verdict']} with {', '.join(sorted(spoiled))}"]
    if row["ratio"] is None or row["low"] is None or row["verdict"] not in (FASTER, SLOWER, SAME):
        return []
    true_log = -math.log(truth.ratio)
    log, room = math.log(row["ratio"]), INTERVAL_ROOM * math.log(row["high"] / row["low"]) / 2
    right = {FASTER: true_log > 0, SLOWER: true_log < 0, SAME: abs(true_log) < 0.02}[row["verdict"]]
    return [] if right or abs(log - true_log) <= room else [f"{row['verdict']} of ratio {truth.ratio:g}"]


def _is_supported(truth: Truth) -> bool:
    """Whether such a session must get its answer: nothing stands against it, and the effect is clear."""
    if _list_active_traits(truth) & (SPOILS | {"fails_rarely"}) or truth.rounds < 10:
        return False
    return abs(math.log(truth.ratio)) > 0.2 and truth.noise <= 0.01


WORKS = {"sleep": "sleep {s}; echo done", "loop": "{python} -S -c 'for i in range({n}): pass\nprint(\"done\")'"}
LEFT = (
    "sleep {s} > /dev/null & echo done",
    "setsid sleep {s} > /dev/null 2>&1 & echo done",
    "nohup sleep {s} > /dev/null 2>&1 & echo done",
    "(sleep {s} > /dev/null &) ; echo done",
    "{python} -S -c 'import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    "        time.sleep({s})\n"
    '    os._exit(0)\nprint("done")\'',
)
BASH = (
    "[[ 1 == 1 ]] && sleep {s}; echo done",
    "sleep {s} &> /dev/null; echo done",
    "works=(sleep {s}); ${{works[@]}}; echo done",
    "cat <(sleep {s}; echo done)",
    "for n in {{1..2}}; do sleep {s}; done; echo done",
    "word=done; sleep {s}; echo ${{word,,}}",
    "cat <<< done; sleep {s}",
    "function work {{ sleep {s}; }}; work; echo done",
)
KINDS = (
    "equal", "slower", "faster", "left", "left_short", "differs", "shorter", "fails", "fails_often", "bash",
    "varies", "unknown_program", "silent", "stdin", "exit_codes", "prepared", "scan",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A baseline and another command, the settings to ask with, and what is true of them."""

    kind: str
    commands: tuple[str, str]
    traits: frozenset[str]
    ratio: float | None = 1.0
    settings: dict[str, Any] = field(default_factory=dict)


def draw_pair(draw: random.Random, folder: Path, kind: str) -> Pair:
    """Draw two commands; `folder` is where they run, with a file `words.txt` of nine lines."""
    s = draw.choice([0.02, 0.03])
    ratio = draw.choice([3.0, 4.0])
    work = "sleep" if kind not in ("equal", "slower", "faster") else draw.choice(list(WORKS))
    base, longer = (
        WORKS[work].format(s=s * times, n=int(s * times * 2e7), python=sys.executable) for times in (1, ratio)
    )
    fill = {"s": 0.4 if kind == "left" else 0.02, "python": sys.executable}
    plain = {
        "equal": Pair(kind, (base, base), frozenset()),
        "slower": Pair(kind, (base, longer), frozenset(), ratio),
        "faster": Pair(kind, (longer, base), frozenset(), 1 / ratio),
        "left": Pair(kind, (longer, draw.choice(LEFT).format(**fill)), frozenset({"left"}), None),
        "left_short": Pair(kind, (longer, draw.choice(LEFT).format(**fill)), frozenset({"left"}), None),
        "differs": Pair(kind, (longer, f"sleep {s}; echo dune"), frozenset({"differs"}), 1 / ratio),
        "shorter": Pair(kind, (longer + "; seq 500", base + "; seq 50"), frozenset({"differs"}), 1 / ratio),
        "fails": Pair(kind, (longer, f"sleep {s}; echo '{LAST_LINE}' >&2; exit 3"), frozenset({"fails"}), None),
        "fails_often": Pair(
            kind, (longer, f"{base}; case $(date +%N) in *[0-4]) echo '{LAST_LINE}' >&2; exit 3;; esac"),
            frozenset({"fails_often"}), 1 / ratio,
        ),
        "bash": Pair(kind, (base, draw.choice(BASH).format(s=s)), frozenset({"bash"}), None),
        "varies": Pair(kind, (f"{longer}; date +%s%N", f"{base}; date +%s%N"), frozenset({"varies"}), 1 / ratio),
        "unknown_program": Pair(
            kind, ("sleep 0.03", f"no-such-{draw.randrange(99)} | cat"), frozenset({"unknown_program", "silent"}), None
        ),
        "silent": Pair(kind, (f"sleep {s * ratio}", f"sleep {s}"), frozenset({"silent"}), 1 / ratio),
        "stdin": Pair(
            kind, (f"sleep {s * ratio}; wc -l", f"sleep {s}; wc -l"), frozenset(), 1 / ratio,
            {"input": str(folder / "words.txt")},
        ),
        "exit_codes": Pair(
            kind, (f"{longer}; grep nothing words.txt", f"{base}; grep nothing words.txt"), frozenset(), 1 / ratio,
            {"exit_codes": (0, 1)},
        ),
        "prepared": Pair(
            kind, (longer, base), frozenset(), 1 / ratio,
            {"prepare": "sleep 0.05", "cleanup": "sleep 0.05", "warmup": 0, "margin": 0.1},
        ),
        "scan": Pair(
            kind, ("sleep {pause}; echo done", ""), frozenset(), 1 / ratio,
            {"scan": (f"pause={s * ratio:g},{s:g}",)},
        ),
    }  # fmt: skip
    return plain[kind]


def judge_pair(seed: int, *, kind: str | None = None) -> Judged:
    """Draw two commands, run them really, and hold what is said against the truth."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="commands-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "words.txt").write_text("".join(f"word {number}\n" for number in range(9)))
        pair = draw_pair(draw, folder, kind or KINDS[seed % len(KINDS)])
        try:
            outcome = _run_pair(pair, folder)
        except WorkbenchError as error:
            judged = Judged(seed, (pair.kind,), text=str(error))
            expected = TELLS["bash"] if "bash" in pair.traits else None
            judged.refused = "" if expected and re.search(expected, str(error)) else str(error)
            return judged
        return _hold_pair(seed, pair, outcome)


def _run_pair(pair: Pair, folder: Path) -> SessionOutcome:
    known = {name: value for name, value in pair.settings.items() if name in SessionConfig.model_fields}
    if "scan" in pair.settings and "scan" not in known:
        raise WorkbenchError("no scan yet")
    commands = [f"{name}={text}" for name, text in zip(("old", "new"), pair.commands, strict=True) if text]
    config = session_config(commands=tuple(commands), rounds=(6,), timeout_s=10.0, **known)
    with contextlib.chdir(folder):
        return sessions.start_session(config, out=folder / "out")


def _hold_pair(seed: int, pair: Pair, outcome: SessionOutcome) -> Judged:
    """Hold what was said of a pair against its truth."""
    runs = outcome.compared.observed.runs
    traits = set(pair.traits)
    if "fails_often" in traits and not runs.filter((runs["arm"] == "new") & (runs["status"] != "ok")).height:
        traits -= {"fails_often"}
    text = format_session(outcome)
    judged = Judged(seed, (pair.kind,), text=text)
    if "bash" in traits:
        judged.wrong.append("runs with another shell than it is written for")
    for trait in sorted(traits & TELLS.keys()):
        if not re.search(TELLS[trait], text):
            judged.wrong.append(f"{trait} is not told")
    spoiled = traits & SPOILS
    if outcome.compared.valid and spoiled:
        judged.wrong.append(f"valid with {', '.join(sorted(spoiled))}")
    table = outcome.compared.effects
    rows = table.filter(~table["control"] & table["metric"].str.contains("elapsed"))
    for row in rows.iter_rows(named=True):
        judged.wrong += _judge_pair_row(pair, row, spoiled)
    reason = "" if outcome.compared.valid else str(outcome.compared.judgement["reasons"][0][0])
    # A busy machine leaves a few rounds undecided, which is told with the rounds that would decide.
    if not spoiled and pair.ratio != 1.0 and "interval reaches" not in reason:
        judged.refused = reason
    return judged


def _judge_pair_row(pair: Pair, row: dict[str, Any], spoiled: set[str]) -> list[str]:
    """What is wrong about the verdict on time of a pair: the start of a shell dilutes ratios, but not directions."""
    if row["verdict"] not in (FASTER, SLOWER, SAME):
        return []
    if spoiled & {"left", "fails", "unknown_program"} or pair.ratio is None:
        return [f"{row['verdict']} with {', '.join(sorted(spoiled)) or pair.kind}"]
    right = SAME if pair.ratio == 1 else SLOWER if pair.ratio > 1 else FASTER
    # Of equal commands on a busy machine a small difference may be drawn; a large one may not.
    is_small = pair.ratio == 1 and 0.9 < row["ratio"] < 1.1
    return [] if row["verdict"] == right or is_small else [f"{row['verdict']} of ratio {pair.ratio:g}"]


def summarize(found: Sequence[Judged], show: int) -> str:
    """Counts of worlds that are wrong or refused, by trait."""
    wrong, refused = [one for one in found if one.wrong], [one for one in found if one.refused]
    lines = [f"{len(found)} worlds: {len(wrong)} wrong in silence, {len(refused)} refused"]
    for name, group in (("wrong", wrong), ("refused", refused)):
        lines += [f"  {name} with {trait}: {count}" for trait, count in Counter(
            trait for one in group for trait in one.traits).most_common()]  # fmt: skip
    sentences = Counter(re.sub(r"[\d.]+", "#", sentence) for one in wrong for sentence in one.wrong)
    lines += [f"  {count} x {sentence}" for sentence, count in sentences.most_common(20)]
    for one in [*wrong, *refused][:show]:
        lines += ["", f"seed {one.seed}: {', '.join(one.traits)}: {one.wrong or one.refused}"]
    return "\n".join(lines)


def main() -> None:
    """Judge many worlds and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--show", type=int, default=0)
    given = parser.parse_args()
    judge: Callable[[int], Judged] = judge_pair if given.live else judge_world
    print(summarize([judge(seed) for seed in range(given.first, given.first + given.count)], given.show))


if __name__ == "__main__":
    main()
