"""Samples by name: each listed one is there and has a name of its own; wrong names are answered with the right ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core import samples
from workbench.core.errors import ConfigError
from workbench.core.files import SHIPPED

SAMPLES = samples.list_samples()


@pytest.mark.parametrize("path", SAMPLES)
def test_a_listed_sample_is_there_and_its_name_leads_to_it(path: str) -> None:
    name = samples.name_sample(path)
    assert samples.find_sample(f"sample:{name}") == str(samples.FOLDER / path)
    assert (samples.FOLDER / path).exists()
    assert SAMPLES[path].endswith(".")
    assert samples.spell_sample(str(samples.FOLDER / path)) == f"sample:{name}"


def test_what_notebooks_read_by_default_is_listed() -> None:
    """So are all scenarios and recordings: whoever adds one gives it a line."""
    folders = ("scaletest/scenarios", "speedup", "capacity", "gpu")
    inner = [path for folder in folders for path in (samples.FOLDER / folder).iterdir()]
    wanted = {path.relative_to(samples.FOLDER).as_posix() for path in inner if path.suffix not in (".md", ".py")}
    assert wanted - {"gpu/documents"} <= {*SAMPLES}


def test_a_part_of_a_sample_is_found_by_its_path() -> None:
    assert samples.find_sample("sample:speedup/tpch-sf1/recording.json").endswith("tpch-sf1/recording.json")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tpch_sf01", "did you mean sample:tpch_sf0.1?"),
        ("eventlogs/tpch_sf0.1.zst", "did you mean sample:tpch_sf0.1?"),
        ("league", "allowed: sample:scaletest/league, sample:scaletest/scenarios/league.yaml"),
        ("sizing", "allowed: sample:gpu/sizing, sample:capacity/sizing"),
        ("qqqq", "do: workbench samples lists them"),
        ("", "workbench samples lists them"),
        ("../../README.md", "workbench samples lists them"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        samples.find_sample(f"sample:{name}")
    assert said in str(caught.value)
    assert f"where: sample:{name}" in str(caught.value)


def test_what_the_present_folder_has_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "data/samples/eventlogs/failing.zstd"
    monkeypatch.chdir(tmp_path)
    assert samples.find_sample(name) == str(SHIPPED / name)
    assert samples.find_sample("data/samples/none.zstd") == "data/samples/none.zstd"
    assert samples.find_sample("data/samples/../../README.md") == "data/samples/../../README.md"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    (tmp_path / "sample:failing").touch()
    assert samples.find_sample(name) == name
    assert samples.find_sample("sample:failing") == "sample:failing"
