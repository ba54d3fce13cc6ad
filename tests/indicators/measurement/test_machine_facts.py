"""The machine: keys, pressure, cores; every probe may find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.indicators.measurement import machine_facts
from workbench.indicators.store.archive import Pressure

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: A Processor
flags\t\t: sse avx avx512f
processor\t: 1
flags\t\t: other

processor\t: 2
"""


def test_hardware_is_read_and_has_a_key(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(CPUINFO.replace("processor\t: 1", "\nprocessor\t: 1"))
    found = machine_facts.detect_hardware(cpuinfo)
    assert (found.cpu_family, found.cpu_model_number, found.cpu_flags) == (6, 85, ("avx", "avx512f", "sse"))
    assert len(found.key) == 12
    cpuinfo.write_text(CPUINFO.replace("avx512f", ""))
    assert machine_facts.detect_hardware(cpuinfo).key != found.key
    nothing = machine_facts.detect_hardware(tmp_path / "none")
    assert (nothing.cpu_family, nothing.cpu_model_number, nothing.cpu_flags) == (None, None, ())
    assert nothing.key
    assert machine_facts.build_hwinfo(nothing)["cpu_info"].keys() == {"brand_raw", "arch", "count"}


def test_pressure_is_read(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 1 2\n")
    (tmp_path / "pressure" / "cpu").write_text("some avg10=1.25 avg60=0.50 avg300=0.1 total=1\nfull avg10=0.00\n")
    (tmp_path / "pressure" / "memory").write_text("nonsense\n")
    nothing = machine_facts.read_pressure(tmp_path / "none")
    assert nothing == Pressure(load_1m=nothing.load_1m)
    found = machine_facts.read_pressure(tmp_path)
    assert (found.steal_s, found.cpu_some_avg10, found.memory_some_avg10) == (2.5, 1.25, None)
    assert (found.all_busy_s, found.disk_busy_s) == (0.19, None)


def test_disks_are_counted_without_their_partitions_and_those_that_are_none(tmp_path: Path) -> None:
    for name in ("sda", "sdb", "zram0"):
        (tmp_path / "block" / name).mkdir(parents=True)
    counts = "10 0 100 7 20 0 50 9 0 2500 16"
    lines = [f"8 {number} {name} {counts}" for number, name in enumerate(("sda", "sda1", "sdb", "zram0"))]
    (tmp_path / "diskstats").write_text("\n".join(lines) + "\n")
    found = machine_facts.read_pressure(tmp_path, sys_root=tmp_path)
    assert (found.disk_busy_s, found.disk_sectors) == (5.0, 300)


def test_settings_that_the_system_does_not_tell_are_left_out(tmp_path: Path) -> None:
    assert machine_facts.read_host_facts(tmp_path)["settings"] == {}
    path = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    path.parent.mkdir(parents=True)
    path.write_text("performance\n")
    assert machine_facts.read_host_facts(tmp_path)["settings"] == {"governor": "performance"}


@pytest.mark.parametrize(
    ("threads", "allowed", "runs", "own"),
    [
        (1, [0], (0,), (0,)),
        (1, [0, 1], (1,), (0,)),
        (2, [0, 1], (0, 1), (0,)),
        (2, [0, 1, 2, 3], (2, 3), (0,)),
        (9, [0, 1, 2, 3], (0, 1, 2, 3), (0,)),
        (1, [4, 6], (6,), (4,)),
    ],
)
def test_the_workbench_keeps_the_first_core_while_it_can(
    threads: int, allowed: list[int], runs: tuple[int, ...], own: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / f"sys/devices/system/cpu/cpu{allowed[-1]}/topology/thread_siblings_list"
    for _ in range(2):
        assert machine_facts.assign_cores(threads, allowed, tmp_path) == (runs, own)
        # Damaged topology is no topology.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("nonsense-\n")


def test_two_threads_of_one_core_are_not_taken_while_there_are_others(tmp_path: Path) -> None:
    for core, siblings in {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}.items():
        path = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(siblings + "\n")
    assert machine_facts.assign_cores(3, range(8), tmp_path)[0] == (5, 6, 7)
    # Then the other halves of those, and only at last the one beside the workbench.
    assert machine_facts.assign_cores(4, range(8), tmp_path)[0] == (3, 5, 6, 7)
    assert machine_facts.assign_cores(7, range(8), tmp_path)[0] == (1, 2, 3, 4, 5, 6, 7)
