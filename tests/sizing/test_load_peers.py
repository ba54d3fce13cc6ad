"""Times of `workbench sizing run` and of other load tools beside the server's own clock, as told and after import.

Show the ratios with `pytest -m "" -s tests/sizing/test_load_peers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes import paced_server
from tests.sizing import load_peers
from tests.sizing.load_peers import Comparison, Load

pytestmark = [pytest.mark.live, pytest.mark.network, pytest.mark.timeout(1_200)]
N_USERS, N_REQUESTS, MAX_ERROR = 4, 200, 0.05
# A busy machine delays a run; what is wrong is wrong in each.
N_TRIALS = 2
# By trait and tool: what its own summary has wrong, and what is unknown after import.
KNOWN_ERRORS = {
    # They divide by all tokens but one, though the first event holds three; the file does not say what an event holds.
    ("several", "aiperf"): ({"itl"}, {"itl"}),
    ("several", "guidellm"): ({"itl"}, {"itl"}),
    ("several", "inference-perf"): ({"itl"}, {"itl"}),
    # It times the text alone; the tokens that the server counts are not those of the events that it times.
    ("reasoning", "inference-perf"): ({"ttft"}, {"ttft", "itl"}),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return load_peers.make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def wrong_kinds(ratios: Mapping[str, float | None]) -> set[str]:
    return {name.split("_")[0] for name, ratio in ratios.items() if ratio is not None and abs(ratio - 1) > MAX_ERROR}


def as_expected(found: Comparison, wrong: set[str], unknown: set[str]) -> bool:
    nulls = {name.split("_")[0] for name, ratio in found.imported.items() if ratio is None}
    return (wrong_kinds(found.told), wrong_kinds(found.imported), nulls) == (wrong, set(), unknown)


@pytest.mark.parametrize("tool", load_peers.TOOLS)
@pytest.mark.parametrize("trait", paced_server.TRAITS)
def test_times_are_those_of_the_servers_clock_or_their_error_is_told(
    trait: str, tool: str, tokenizer: Path, tmp_path: Path
) -> None:
    wrong, unknown = KNOWN_ERRORS.get((trait, tool), (set(), set()))
    for trial in range(N_TRIALS):
        with paced_server.serving(trait) as url:
            load = Load(url, paced_server.MODEL, tokenizer, N_USERS, N_REQUESTS, paced_server.N_TOKENS)
            found = load_peers.compare_with_truth(tool, load, tmp_path / str(trial) / "result")
        print(f"\n{trait}, {tool}: told {found.told}, imported {found.imported}, {found.notes}")
        if as_expected(found, wrong, unknown):
            break
    assert as_expected(found, wrong, unknown), found
    assert bool(unknown) == any("unknown" in note for note in found.notes)
