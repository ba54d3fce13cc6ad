"""`workbench indicators blame`: real environments of tiny wheels that differ in many packages, with planted causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indicators.stacks.making import Made, local_index, own_settings
from workbench.cli.app import main

pytestmark = pytest.mark.timeout(1200)
N_PACKAGES = 21
# Times are planted, a little apart from run to run, as all that is measured.
SCRIPT = """
import importlib.metadata, json, os, random
new = {{name for name in {names} if importlib.metadata.version(name) == "2.0"}}
if os.environ.get("PLANTED") == "bad":
    new.add("PLANTED")
factor = 1.0
for causes, times in {causes}:
    if set(causes) <= new:
        factor *= times
print(json.dumps({{"name": "Planted", "@parameters": {{}},
                  "@result": {{"elapsed_ms": 50 * factor * random.lognormvariate(0, {noise})}}}}))
"""
NAMES = [f"p{chr(97 + place)}" for place in range(N_PACKAGES)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the file: compiling the standard library takes longer than a session."""
    return tmp_path_factory.mktemp("cache")


def blame(folder: Path, causes: list[tuple[list[str], float]], *options: str, noise: float = 0.005) -> tuple[int, Any]:
    script = folder / "planted.py"
    script.write_text(SCRIPT.format(names=NAMES, causes=causes, noise=noise))
    sides = [" ".join(f"{name}=={version}" for name in NAMES) for version in ("1.0", "2.0")]
    command = ["indicators", "blame", *sides, "--script", str(script), "--rounds", "6,12", "--out", str(folder / "out")]
    return run([*command, "--json", *options])


def run(command: list[str]) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as ended:
        main(command)
    return int(ended.value.code or 0), None


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_settings(monkeypatch, tmp_path, cache)
    # A requirement that a mixed set breaks: packages are installed as they are.
    wheels = [Made(name, "1.0") for name in NAMES]
    wheels += [Made(name, "2.0", ("pa>=2",) if name == "pb" else ()) for name in NAMES]
    monkeypatch.setenv("UV_DEFAULT_INDEX", local_index(tmp_path / "index", wheels).as_uri())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_planted_packages_are_named_with_their_shares(
    seed: int, index: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(seed)
    chosen = [str(name) for name in draw.choice(NAMES, 1 + seed % 3, replace=False)]
    causes: list[tuple[list[str], float]] = [([name], float(draw.uniform(1.15, 1.8))) for name in chosen]
    if seed in (4, 7):
        causes = [(chosen, 1.6)]
    if seed == 9:
        causes = []
    code, _ = blame(tmp_path, causes)
    found = json.loads(capsys.readouterr().out)
    named = {row["name"] for row in found["causes"]}
    assert named == {name for names, _ in causes for name in names}, found["answer"]
    if causes:
        assert (code, found["kind"]) == (0, "found")
    if seed in (4, 7) and len(chosen) > 1:
        assert "together" in found["answer"]
    assert found["n_sessions"] <= 2 * np.log2(N_PACKAGES) + 6


@pytest.mark.slow
def test_a_stopped_search_goes_on_and_a_variable_can_be_the_cause(
    index: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "planted.py"
    script.write_text(SCRIPT.format(names=NAMES, causes=[(["PLANTED"], 1.5)], noise=0.003))
    sides = []
    for name, version in (("good", "1.0"), ("bad", "2.0")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({"packages": dict.fromkeys(NAMES, version), "env": {"PLANTED": [name]}}))
        sides.append(str(path))
    options = ["--script", str(script), "--rounds", "6,12", "--out", str(tmp_path / "out"), "--json"]
    code, _ = run(["indicators", "blame", *sides, *options, "--budget", "0"])
    stopped = json.loads(capsys.readouterr().out)
    assert (code, stopped["n_sessions"]) == (1, 1)
    assert "the time of 0 s has passed" in stopped["answer"]
    (folder,) = (tmp_path / "out").glob("blame-*")
    code, _ = run(["indicators", "blame", "--resume", str(folder), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, [(row["kind"], row["name"]) for row in found["causes"]]) == (0, [("variable", "PLANTED")])
    assert found["sessions"][0] == stopped["sessions"][0]
    assert found["causes"][0]["alone"] == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(
    ("sides", "told"),
    [
        (["pa==1.0"], "two sides are needed"),
        (["pa==1.0", "pa==1.0"], "the sides do not differ"),
        (["pa==1.0", "pa==2.0", "--indicator", "sort"], "exactly one indicator is needed"),
        (["--resume", "missing"], "not the folder of a search"),
        (["--resume", "missing", "pa==1.0", "pa==2.0", "--rounds", "9"], "found: GOOD, BAD, --rounds"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    sides: list[str], told: str, index: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "planted.py").write_text("")
    more = [] if "--resume" in sides else ["--script", str(tmp_path / "planted.py"), "--out", str(tmp_path)]
    code, _ = run(["indicators", "blame", *sides, *more])
    assert code == 2
    assert told in capsys.readouterr().err
