"""Parameters of the notebook that do not fit each other are refused before Spark is started."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.conftest import ROOT
from workbench import parameters
from workbench.lore.notebook_config import NotebookConfig, spelled
from workbench.report import read_notebook

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"query_file": ""}, "query_file, or dump_folder"),
    ({"query_file": "q.sql", "ids": "3[0]", "partition": 1}, "not both"),
    ({"query_file": "q.sql", "dump_folder": "s3a://bucket/dump"}, "on this machine"),
    ({"query_file": "q.sql", "dump_path": "hdfs://host/dump"}, "on this machine"),
    ({"query_file": "q.sql", "repeat": -1}, "greater than or equal to 0"),
    ({"query_file": "q.sql", "engine": "velox"}, "'spark' or 'comet'"),
    ({"query_file": "q.sql", "level": 1.0}, "less than 1"),
    ({"query_file": "q.sql", "idz": "1"}, "Extra inputs"),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        NotebookConfig(**given)


def test_an_id_alone_means_all_its_partitions_or_the_one_that_is_named() -> None:
    assert NotebookConfig(query_file="q.sql", ids=" 10 ").selection == "10[*]"
    assert NotebookConfig(query_file="q.sql", ids="10", partition=3).selection == "10[3]"
    assert NotebookConfig(query_file="q.sql", ids="10[0 2]").selection == "10[0 2]"
    assert NotebookConfig(query_file="q.sql").selection == ""
    assert spelled(4, None) == "4[*]"


def test_the_notebook_has_a_parameter_for_every_field_and_no_other() -> None:
    declared = parameters.read(read_notebook(ROOT / "notebooks" / "02_lore.ipynb"))
    assert [one.name for one in declared] == list(NotebookConfig.model_fields)
    NotebookConfig(**{one.name: one.default for one in declared})
