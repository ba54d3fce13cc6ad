"""Examples of `--help` work from any folder: their inputs are samples, or made by an example before."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.test_command_groups import COMMANDS, GROUPS
from tests.test_documents import parse
from workbench.cli import app
from workbench.core import samples

# What only a user has: a run, a service, a cluster, results of another tool, limits.
OWN = {
    *("parameters.yaml", "thresholds.yaml", "limits.yaml", "changed.parquet", "logs"),
    *("pods.log", "runs/a", "h.json", "suites/*.json", "dumps/failed/loreId-3", "dumps/q/loreId-12", "out"),
    "Qwen/Qwen3-32B-FP8",
}
OUT_OPTIONS = {
    "--out",
    "--output",
    "-o",
    "--path",
    "--html",
    "--database",
    "--ledger",
    "--calc_output_dir",
    "--export-json",
    "--to",
}
_FILE = re.compile(r"[\w.*-]+(/[\w.*-]+)+/?|[\w-]+\.(zstd|json|yaml|sql|csv|parquet|db|log|zip|gz)")
_PLACEHOLDER = re.compile(r"(.*/)?(\d{8}T\d{4,6}Z?(-\w+)?|RUN)|s3:.*|https?:.*")
# Each takes a second or less, and starts neither Spark nor a cluster; the others of samples are in the slow test.
QUICK = [
    "samples",
    "capacity",
    "eventlog",
    "forecast",
    "indicators",
    "scaletest plan",
    "scaletest trace",
    "sizing estimate",
    "sizing import",
    "sizing manifests",
]


def list_examples() -> Iterator[tuple[str, str]]:
    """Each example, by the command whose help shows it."""
    texts = [(name, group.help, group.epilog) for name, group in GROUPS.items()]
    for name, told, epilog in [*texts, *((name, one.help, one.epilog) for name, one in COMMANDS.items())]:
        # Lines of a docstring are wrapped, those of an epilog are not.
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=[A-Z][\w ]+: )", told or "")]
        for line in [*paragraphs, *(epilog or "").splitlines()]:
            match = re.match(r"\s*(?:[A-Z][\w, ]+: ?)?((?:[a-z]\S* .*)?\bworkbench [a-z].*)", line)
            if match and not line.startswith("Examples, after"):
                yield name, re.split(r"\s{3,}", match[1])[0].rstrip(":")


EXAMPLES = list(dict.fromkeys(list_examples()))


def list_commands(example: str) -> list[list[str]]:
    """The words of each workbench command in an example."""
    parts = re.split(r" && | \| (?=workbench)|; ", example)
    return [shlex.split(part.strip()) for part in parts if part.strip().startswith("workbench ")]


def list_made() -> set[str]:
    """Files and folders that examples write."""
    words = [command for _, example in EXAMPLES for command in list_commands(example)]
    pairs = [pair for command in words for pair in itertools.pairwise(command)]
    return {value.rstrip("/") for option, value in pairs if option in OUT_OPTIONS}


def test_there_are_examples_of_every_command_that_takes_inputs() -> None:
    assert len(EXAMPLES) > 90


@pytest.mark.parametrize("example", dict.fromkeys(example for _, example in EXAMPLES))
def test_inputs_of_an_example_are_samples_or_made_by_another(example: str) -> None:
    made = list_made()
    for words in list_commands(example):
        parse(words)
        for word in words[2:]:
            value = word.partition("=")[2] if "=" in word else word
            if value.startswith(samples.PREFIX):
                assert Path(samples.find_sample(value)).exists()
            elif _FILE.fullmatch(value) and not _PLACEHOLDER.fullmatch(value) and value not in OWN:
                assert any(value.rstrip("/").startswith(place) for place in made), value


def run_example(example: str) -> None:
    for words in list_commands(example):
        with pytest.raises(SystemExit) as ended:
            app.main(words[1:])
        assert not ended.value.code, example


def is_of_samples(example: str) -> bool:
    return samples.PREFIX in example and not re.search("--cluster|--context|--url|lore|workbench run", example)


def is_quick(name: str) -> bool:
    return any(name.startswith(quick) for quick in QUICK)


def list_files() -> dict[Path, tuple[int, int]]:
    """Size and time of each file of the samples."""
    found = {path: path.stat() for path in samples.FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found.items()}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder to work in; the samples stay as they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path / "runs"))
    before = list_files()
    yield
    assert list_files() == before


@pytest.mark.usefixtures("elsewhere")
def test_quick_examples_of_samples_run_from_an_empty_folder() -> None:
    chosen = [example for name, example in EXAMPLES if is_quick(name) and is_of_samples(example)]
    assert len(chosen) > 12
    for example in dict.fromkeys(chosen):
        run_example(example)


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_all_other_examples_of_samples_run_from_an_empty_folder() -> None:
    chosen = [example for name, example in EXAMPLES if not is_quick(name) and is_of_samples(example)]
    assert len(chosen) > 6
    for example in dict.fromkeys(chosen):
        run_example(example)
