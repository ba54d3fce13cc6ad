"""One test a folder: the second one is refused, whether in this process or in another that died since."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workbench.core.errors import ConfigError
from workbench.scaletest.submission.submission_journal import lock_test_folder

HOLD = """
import pathlib, sys, time
from workbench.scaletest.submission.submission_journal import lock_test_folder
with lock_test_folder(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_test_of_the_same_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with (
        lock_test_folder(tmp_path),
        pytest.raises(ConfigError, match="another process is running the test"),
        lock_test_folder(tmp_path),
    ):
        pass
    with lock_test_folder(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="wait for it, or end it"), lock_test_folder(tmp_path):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with lock_test_folder(tmp_path):
        pass
