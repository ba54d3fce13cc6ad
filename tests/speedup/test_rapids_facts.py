"""Built-in tables: whole, as the source that they name, and the same facts as the project's notes on them."""

from __future__ import annotations

import hashlib
import json

import pytest

from workbench.core.errors import ConfigError
from workbench.speedup import rapids_facts


def test_every_table_has_the_sha256_that_its_source_note_names() -> None:
    source = json.loads((rapids_facts.HERE / "SOURCE.json").read_text())
    for name, digest in source["sha256"].items():
        assert hashlib.sha256((rapids_facts.HERE / name).read_bytes()).hexdigest() == digest, name
    assert source["package"].startswith("spark_rapids_user_tools-26.8.4")
    assert len(source["sha256_of_sources"]) == 15


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("onprem-a100", (4.51, 4.41, 22.33, 6.64)),
        ("dataproc-t4", (3.76, 8.13, 52.97, 18.9)),
        ("emr-a10", (4.42, 4.92, 17.22, 4.55)),
        ("dataproc-serverless-l4", (4.47, 5.54, 7.4, 4.25)),
    ],
)
def test_scores_are_those_of_the_platform(platform: str, expected: tuple[float, ...]) -> None:
    scores = rapids_facts.get_operator_scores(platform)
    names = ("FilterExec", "HashAggregateExec", "SortMergeJoinExec", "SortExec")
    assert tuple(scores[name] for name in names) == expected


def test_there_are_twelve_platforms_and_another_is_refused() -> None:
    assert len(rapids_facts.list_platforms()) == 12
    with pytest.raises(ConfigError, match="no such platform"):
        rapids_facts.get_operator_scores("moon-t4")


def test_the_older_release_supports_less() -> None:
    older, newer = (
        {row.name: row.level for row in rapids_facts.list_supported_expressions(release)}
        for release in ("24.08", "26.08")
    )
    assert (older["JsonToStructs"], newer["JsonToStructs"]) == ("NS", "S")
    assert "ArrayDistinct" not in older
    assert newer["ArrayDistinct"] == "S"
    reads = [
        {
            row["int"]
            for row in rapids_facts.list_supported_formats(release)
            if (row["Format"], row["Direction"]) == ("JSON", "read")
        }
        for release in ("24.08", "26.08")
    ]
    assert reads == [{"CO"}, {"S"}]


def test_the_seed_generators_rows_are_known_operators() -> None:
    assert len(rapids_facts.list_seed_operators()) == 271
    assert {name for name, _ in rapids_facts.list_seed_operators()} <= rapids_facts.list_known_operators()
