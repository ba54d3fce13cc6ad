"""The key of dumps is made in a folder of the tests, never in that of whoever runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lore.local_spark import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def _tests_config_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Of the session, for dumps are made in fixtures of modules and replayed by processes of their own.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def config_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of this test alone, who has no key yet."""
    home = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    return home


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session of the module's own on two cores, with the views a and b."""
    with local() as found:
        yield found
