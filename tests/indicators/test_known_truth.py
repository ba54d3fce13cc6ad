"""Five versions of numpy, solved, installed and measured here and now: what is known of them is found.

Sorting got vector instructions in 1.25 and later, and the sine of 1.24 is fast and wrong, both only where the processor
has AVX-512. On others nothing is known, and only agreement of a session with itself is asked. Matrices are multiplied
by OpenBLAS: alike wherever it takes the same kernel. One that is older than the processor takes that of an older one
(Emerald Rapids, 2026-11-22: numpy 1.24.4 and 1.26.4 need 4.4 times as long as 2.2.6).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import polars as pl
import pytest

from workbench.core.errors import RunFailedError
from workbench.indicators.analysis.effects import Comparison, estimate_effects
from workbench.indicators.analysis.observations import Observations
from workbench.indicators.config import session_config
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.launcher_client import Launcher, RunLimits
from workbench.indicators.recommendation.recommendation_request import build_request
from workbench.indicators.recommendation.recommender import recommend
from workbench.indicators.stacks.package_index import PackageIndex
from workbench.indicators.stacks.target_platform import build_target
from workbench.indicators.stacks.uv_tool import load_sources

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]

VERSIONS = ("2.2.6", "1.24.4", "1.26.4", "2.0.2", "2.4.6")
SIN = "Ufunc[function=sin]"
AVX512 = {"avx512f", "avx512bw", "avx512dq"}
"""What numpy asks for before it takes its code for AVX-512."""


def needs_index() -> None:
    """Skip where the package index is out of reach; whatever goes wrong after that is a failure."""
    sources = load_sources()
    if not sources.indexes:
        pytest.skip("no package index is configured")
    try:
        PackageIndex(sources, build_target()).list_wheels("numpy")
    except RunFailedError as error:
        if "cannot reach the package index" not in str(error):
            raise
        pytest.skip("cannot reach the package index")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> sessions.SessionOutcome:
    """Ten rounds of sort, sin and matmul on five versions and the control."""
    needs_index()
    config = session_config(
        stack=tuple(f"numpy=={version}" for version in VERSIONS),
        indicators=("sort", "ufunc:function=sin", "matmul"),
        rounds=(10,),
        seed=3,
    )
    return sessions.start_session(config, out=tmp_path_factory.mktemp("out"))


@pytest.fixture
def measured(outcome: sessions.SessionOutcome) -> Comparison:
    return outcome.compared


def has_avx512(found: Comparison) -> bool:
    return set(found.observed.session.hardware.cpu_flags) >= AVX512


def of(found: pl.DataFrame, version: str, metric: str) -> dict[str, object]:
    here = (pl.col("stack") == f"numpy {version}") & (pl.col("metric") == metric) & ~pl.col("control")
    return found.filter(here).row(0, named=True)


def test_every_run_gave_a_valid_document(measured: Comparison) -> None:
    runs = measured.observed.runs
    assert runs.height == 6 * 3 * 10
    assert set(runs["status"]) == {"ok"}
    assert measured.valid, measured.judgement["reasons"].to_list()


def test_every_run_was_in_a_network_of_its_own(measured: Comparison) -> None:
    with Launcher(RunLimits(), [sys.executable]) as launcher:
        if launcher.isolation["network"] != "isolated":
            pytest.skip(f"no network namespace can be made: {launcher.isolation['network reason']}")
    assert set(measured.observed.runs["network"]) == {"isolated"}


def test_sorting_and_the_sine_differ_where_the_processor_has_avx512(measured: Comparison) -> None:
    if has_avx512(measured):
        # Ten rounds decide on a quiet machine (tests/indicators/test_recorded.py); beside other work they may not.
        sort, sine = (of(measured.effects, "1.24.4", metric) for metric in ("Sort", SIN))
        assert sort["verdict"] in ("SLOWER", "UNDECIDED"), sort
        assert sine["verdict"] in ("FASTER", "UNDECIDED"), sine
        assert sort["low"] < 0.75, sort  # type: ignore[operator]
        assert sine["high"] > 2, sine  # type: ignore[operator]
        return
    found = measured.observed
    first, second = (
        estimate_effects(Observations(found.session, found.runs, found.values.filter(part), found.checks))
        for part in (pl.col("round") < 5, pl.col("round") >= 5)
    )
    for version in VERSIONS[1:]:
        for metric in ("Sort", SIN):
            one, other = of(first, version, metric), of(second, version, metric)
            assert {one["verdict"], other["verdict"]} != {"FASTER", "SLOWER"}


def kernels(folder: Path) -> dict[str, str | None]:
    """What each stack's OpenBLAS says that it multiplies with."""
    documents = [json.loads(path.read_text()) for path in folder.rglob("result")]
    return {
        one["workbench"]["arm"]: one["stdout"]["numpy_buildinfo"].get("blas_kernel")
        for one in documents
        if one["workbench"]["case"] == "Matmul"
    }


def test_no_version_with_the_same_kernel_multiplies_matrices_faster_or_slower(
    measured: Comparison, outcome: sessions.SessionOutcome
) -> None:
    found = kernels(outcome.folder)
    baseline = found[f"numpy {VERSIONS[0]}"]
    verdicts = {
        arm: of(measured.effects, arm.removeprefix("numpy "), "Matmul")["verdict"]
        for arm in found
        if arm not in (f"numpy {VERSIONS[0]}", "control")
    }
    assert len(verdicts) == 4
    assert baseline is not None or sys.platform != "linux"
    alike = [arm for arm in verdicts if found[arm] == baseline]
    assert [(arm, verdicts[arm]) for arm in alike if verdicts[arm] in ("FASTER", "SLOWER")] == []
    assert [(arm, found[arm]) for arm in verdicts if arm not in alike and verdicts[arm] == "FASTER"] == []
    (control,) = measured.effects.filter((pl.col("metric") == "Matmul") & pl.col("control"))["verdict"]
    assert control not in ("FASTER", "SLOWER")


def test_wrong_sines_are_left_out_with_the_figure_and_the_runs(measured: Comparison) -> None:
    said = recommend(measured, build_request(mix=f"{SIN}=0.8,matmul=0.2"))
    left_out = dict(said.excluded.select("stack", "reason").iter_rows())
    wrong = {arm for arm, metric in measured.wrong if metric == SIN}
    assert set(left_out) == wrong
    if has_avx512(measured):
        told = re.search(r"error_ulp is ([0-9.]+) ULP, at most 1 ULP is allowed", left_out["numpy 1.24.4"])
        assert told is not None
        assert float(told[1]) > 1
    assert said.answer.stack is not None
    assert said.answer.stack not in left_out


def test_its_folder_is_one_that_can_be_passed_on(outcome: sessions.SessionOutcome) -> None:
    out = outcome.folder
    texts = [path.read_text() for path in out.rglob("*") if path.is_file() and path.name in ("result", "session.json")]
    assert len(texts) == 181
    assert not [text for text in texts if str(out.parent) in text or str(Path.home()) + "/" in text]
