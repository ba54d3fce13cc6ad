"""Sessions over a stack matrix, live: two indexes of one package, thread counts, variables, existing environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tests.indicators.stacks.making import Made, served
from workbench.core.errors import ConfigError
from workbench.indicators.contract import Case, Indicator, result
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.sessions import SessionOutcome

pytestmark = pytest.mark.live


class Cost(Indicator):
    """What the installed wheel says that it costs, with a little noise, by the threads that it may use."""

    script: ClassVar[str] = (
        "import json, os, random\n"
        "try:\n    import mine\n    cost = mine.COST\nexcept ImportError:\n    cost = 50\n"
        "cost *= 1 + 0.002 * random.random()\n"
        "cost /= 1 + 0.5 * (int(os.environ['OMP_NUM_THREADS']) - 1)\n"
        "cost *= 2 if os.environ.get('SLOW') else 1\n"
        "print(json.dumps({'name': 'Cost', 'framework': 'x', '@parameters': {}, '@result': {'elapsed_ms': cost}}))\n"
    )
    elapsed_ms: float = result(unit="ms", better="lower")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Copies of byte code take seconds for each new interpreter, and have tests of their own.
    monkeypatch.setattr(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants))
    return tmp_path


def measure(folder: Path, text: str, **more: object) -> SessionOutcome:
    path = folder / "stacks.yaml"
    path.write_text(text, encoding="utf-8")
    config = session_config(stacks=(str(path),), rounds=(6,), seed=1, **more)
    return sessions.start_session(config, cases=[Case.from_parameters(Cost)], out=folder / "runs")


def test_two_indexes_that_serve_one_package_are_compared(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name and version on both; the wheel of the second one is faster by a quarter."""
    plain, fast = Made("mine", "1.0", body="COST = 100\n"), Made("mine", "1.0", body="COST = 80\n")
    with served([plain]) as first, served([fast]) as second:
        monkeypatch.setenv("UV_DEFAULT_INDEX", first.url)
        outcome = measure(
            own_cache,
            f"packages:\n  mine: {{version: '1.0', index: [default, fast]}}\nindexes: {{fast: '{second.url}'}}\n"
            "threads: [1, 2]\n",
        )
        dimensions = outcome.compared.dimensions
        assert dimensions is not None
        found = {row["dimension"]: row for row in dimensions.iter_rows(named=True)}
        index = found["mine index"]
        assert (index["level"], index["base_level"], index["verdict"]) == ("fast", "default", "FASTER")
        # The noise of a run is below 0.2 %: whether an interval holds is a matter of chance, and tested on seeds.
        assert index["ratio"] == pytest.approx(1.25, rel=0.003)
        assert index["is_additive"] is not False
        assert found["threads"]["verdict"] == "FASTER"
        assert found["threads"]["ratio"] == pytest.approx(1.5, rel=0.003)
        arms = outcome.session.arms
        assert [arm.threads for arm in arms] == [1, 2, 1, 2, 1]
        assert len({arm.stack_key for arm in arms}) == 4
        assert set(outcome.compared.observed.runs["threads"]) == {1, 2}
        # A session of two indexes is resumed from what it wrote down, and its stacks keep their hashes apart.
        again = sessions.resume_session(outcome.folder, cases=[Case.from_parameters(Cost)], more=1)
        assert again.session.rounds_done == 7
    assert (outcome.folder / "dimensions.parquet").is_file() or list(outcome.folder.glob("**/dimensions*"))


def test_variables_and_existing_environments_are_arms(own_cache: Path) -> None:
    there = own_cache / "there"
    there.symlink_to(Path(sys.executable).parent.parent)
    outcome = measure(
        own_cache, f"environments: {{here: '{sys.executable}', there: {there}}}\nenv: {{SLOW: ['', '1']}}\n"
    )
    table = outcome.compared.dimensions
    assert table is not None
    found = {row["dimension"]: row for row in table.iter_rows(named=True)}
    assert found["SLOW"]["verdict"] == "SLOWER"
    assert found["SLOW"]["ratio"] == pytest.approx(0.5, rel=0.003)
    assert found["environment"]["verdict"] == "SAME"


def test_what_cannot_be_had_is_a_note_and_nothing_at_all_an_error(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served([Made("mine", "1.0", body="COST = 100\n"), Made("mine", "1.1", body="COST = 90\n")]) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        outcome = measure(own_cache, "python: [3.11, 3.99]\npackages: {mine: ['1.0', '1.1', '7.0']}\n".replace(
            "3.11", f"3.{sys.version_info.minor}"))  # fmt: skip
        notes = " ".join(outcome.session.notes)
        assert "Python 3.99 is not installed" in notes
        assert "mine 7.0" in notes
        assert {arm.factors["mine"] for arm in outcome.session.arms} == {"1.0", "1.1"}
        with pytest.raises(ConfigError, match="no stack can be had"):
            measure(own_cache, "packages: {mine: '7.0'}\n")
        with pytest.raises(ConfigError, match="the same lock and settings"):
            measure(own_cache, "packages: {mine: ['1.1', '>=1.1']}\n")
