"""Figures of `workbench sizing run` beside aiperf's, guidellm's and inference-perf's, of one load in alternating runs.

    python -m bench.bench_sizing_peers [--trials 5] [--json FILE]

First on a stream whose pace is known (`tests/fakes/paced_server.py`): every figure over what the server's own clock
says of the same run, and each tool's over the others'. Then on `transformers serve` with a made model, where only the
tools can be compared; no bar. The tools live in environments of their own, made when they are not there. Quote figures
of a quiet machine: three processes share two cores.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import shape
from bench.shape import Bar, Row
from tests.fakes import paced_server, transformers_server
from tests.sizing import load_peers
from tests.sizing.load_peers import FIGURES, Load

OURS = "workbench"
VERSIONS = {"aiperf": load_peers.AIPERF, "guidellm": load_peers.GUIDELLM, "inference-perf": load_peers.INFERENCE_PERF}
USERS = 8
NEAR = Bar("value", at_least=0.95, at_most=1.05)
REFUSED = "transformers serve refuses the stream_options that guidellm always sends (422)"


def measure_paced(name: str, load: Load, scratch: Path) -> Mapping[str, float]:
    """A tool's figures over the truth of its own run."""
    paced_server.ask(load.url, "/reset", post=True)
    found = load_peers.TOOLS[name](load, _emptied(scratch / name))
    truth = paced_server.ask(load.url, "/truth")
    return {figure: found[figure] / truth[figure] for figure in FIGURES}


def measure_real(name: str, load: Load, scratch: Path) -> Mapping[str, float]:
    """A tool's figures, in seconds."""
    return load_peers.TOOLS[name](load, _emptied(scratch / name))


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def build_rows(found: shape.Trials, scenario: str, unit: str, bar: Bar | None) -> list[Row]:
    """A row for each figure and tool."""
    rows = []
    for figure in FIGURES:
        for side in found.figures:
            rows.append(
                Row(
                    "sizing",
                    f"{scenario}, {figure}",
                    side,
                    unit or ("1/s" if figure == "rate_per_s" else "s"),
                    found.of(side, figure),
                    peer=VERSIONS.get(side, ""),
                    higher_is_better=figure == "rate_per_s",
                    bar=bar,
                    failures=found.failures[side],
                )
            )
    return rows


def main() -> int:
    """Measure, tell, keep."""
    options = shape.parser(__doc__).parse_args()
    requests = 80 if options.quick else 240
    rows: list[Row] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tokenizer = load_peers.make_tokenizer(scratch / "tokenizer")
        with paced_server.serving() as url:
            load = Load(url, paced_server.MODEL, tokenizer, USERS, requests, output_tokens=paced_server.N_TOKENS)
            sides = {side: (lambda side=side: measure_paced(side, load, scratch)) for side in load_peers.TOOLS}
            rows += build_rows(shape.alternating(sides, options.trials), "paced stream, over the truth", "times", NEAR)
        try:
            with transformers_server.serving(scratch) as url:
                model = scratch / transformers_server.MODEL
                load = Load(url, model.name, model, 4, requests // 4, output_tokens=16)
                sides = {side: (lambda side=side: measure_real(side, load, scratch)) for side in (OURS, "aiperf")}
                found = shape.alternating(sides, options.trials, warm_up=1)
                rows += build_rows(found, f"transformers serve {transformers_server.VERSION}", "", None)
            missing["guidellm on transformers serve"] = REFUSED
        except RuntimeError as error:
            missing["transformers serve"] = str(error)[-300:]
    return shape.finish(rows, options.json, missing)


if __name__ == "__main__":
    sys.exit(main())
