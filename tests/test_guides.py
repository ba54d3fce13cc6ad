"""Every command of README.md, guides and tutorials is run: a page's commands in their order, in one scratch folder.

What a command needs decides its tier. Sizes are made smaller by the same command line (`SMALLER`), or by the files that
it names; what cannot be run here is listed with its reason (`NOT_RUN`), and counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from bench import bench_sizing_calc
from tests.conftest import ROOT
from tests.fakes import s3_server
from tests.scaletest.conftest import programs
from tests.sizing import natenv
from tests.test_documents import BLOCK, SPAN, name_of
from workbench.cli import app, project
from workbench.core.files import cache_folder
from workbench.speedup.recording import benchmark_data
from workbench.speedup.recording.query_suite import Suite

pytestmark = pytest.mark.slow

PAGES = [
    ROOT / "README.md",
    *(path for name in ("guide", "tutorials") for path in sorted((ROOT / "docs" / name).glob("*.md"))),
]
LIMIT_S = 600  # against hanging
QUICK = "quick"
RUN = re.compile(r"data/runs/(\w+)/RUN\b")

# The first that fits decides; a guide's folder may hold what an earlier command of the page left there.
TIERS = (
    (r"workbench (doctor|run \S+ --parameters|runs |gallery )", "notebook"),
    (r"workbench lab", "notebook"),
    (r"workbench run lore|workbench lore|workbench speedup record", "spark"),
    (r"workbench run indicators -p session|workbench indicators .*data/runs/indicators/RUN", "network"),
    (r"workbench indicators new \S+ --sql", "network"),  # its own page measures what it writes
    (r"workbench indicators (run|time|bisect|stacks|show|sync|export|collect|history)", "network"),
    (r"workbench (run|gallery)", "notebook"),
    (r"workbench speedup (?!profile)(?!.*--method seed)", "notebook"),
    (r"workbench sizing (calc --config_file|predict)", "network"),
    (r"workbench sizing (simulate|run|import|estimate|verify|manifests|autoscale)", "notebook"),
    (r"workbench scaletest (cluster|run|compare)|workbench scaletest plan .*--cluster", "cluster"),
    (r"workbench ", QUICK),
)
SMALLER = {
    "workbench sizing run": "--users 4,8,16 --max-step 2",
    "workbench indicators run": "--rounds 2",
    "workbench indicators bisect": "--rounds 2",
    "workbench speedup record --engine": "--queries few.sql",
}
SHORTER = {
    "run all": "run 00_start_here",  # CI's main job is the whole of it
    "--scale 0.1 --sessions 5": "--scale 0.01 --sessions 1 --passes 2",
    "--time-scale 0.2": "--time-scale 0.5",
    "p95<=0.3": "p95<=0.75",
    "--repeat 5": "--repeat 1",
    "--nodes 200": "--nodes 20",
    "--think-time 4 ": "",  # a first session alone would take 37 s
    "--concurrencies 1,2,4,8,16,32": "--concurrencies 1,2,4",
}
# Whether what was measured is valid depends on the machine: the pages say that the code is 1 then.
JUDGED = ("workbench sizing run", "workbench sizing estimate", "workbench sizing verify", "workbench indicators run",
          "workbench indicators time", "workbench indicators bisect", "workbench indicators history",
          "workbench run docs/guide/nightly_sort.ipynb --thresholds", "workbench runs check nightly_sort",
          "workbench scaletest run", "workbench indicators recommend data/runs", "workbench run indicators -p session",
          "workbench run history -p source=data/runs", "workbench run sizing -p sweep", "workbench doctor")  # fmt: skip
ELSEWHERE = "a cluster that is not this machine's: tests/scaletest runs these on a local one"
SCENARIO = "data/samples/scaletest/scenarios/first-test.yaml"
NOT_RUN = {
    "workbench lab": "opens a browser and runs until it is ended: tests/browser/test_jupyterlab.py starts it",
    "workbench scaletest cluster build": "compiles for up to 22 minutes, and tests of the area need what it makes",
    f"workbench scaletest plan {SCENARIO} --context CLUSTER --rbac": ELSEWHERE,
    f"workbench scaletest run {SCENARIO} --context CLUSTER --confirm FINGERPRINT": ELSEWHERE,
    "workbench scaletest cleanup RUN --context CLUSTER": ELSEWHERE,
    "workbench speedup validate --method seed --cpu_log CPU_LOG --gpu_log GPU_LOG --output validated": (
        "takes a log of the RAPIDS Accelerator, and none is shipped: tests/speedup/compat_rapids_tools"
    ),
    "workbench indicators time --command new=./new -- ./old": "two programs of the reader's own",
    "workbench indicators collect data/runs/indicators/RUN pods.log": "logs of pods: tests/indicators/kubernetes",
    "workbench mcp --out data/runs": "answers on standard input until it is ended: tests/runs/test_questions.py",
}
BY_CI = re.compile(r"workbench run \w+ --open")  # CI's main job runs every notebook with its defaults
IN_BACKGROUND = ("workbench sizing simulate",)


@dataclass
class Command:
    """One command line of a page."""

    page: Path
    text: str

    @property
    def tier(self) -> str:
        return next(tier for pattern, tier in TIERS if re.match(pattern, self.text))


def joined(text: str) -> str:
    """Code spans on one line each."""
    return re.sub(r"`([^`]+)`", lambda found: "`" + " ".join(found[1].split()) + "`", text)


def commands(page: Path) -> list[Command]:
    """Command lines in shell blocks and, behind them, code spans that are whole command lines; no mere names."""
    blocks = [text for language, text in BLOCK.findall(page.read_text()) if language == "sh"]
    lines = [line.partition(" #")[0].strip() for text in blocks for line in text.splitlines()]
    prose = "\n".join(line for line in BLOCK.sub("", page.read_text()).splitlines() if not line.startswith("|"))
    spans = [
        span for span in SPAN.findall(joined(prose)) if not re.fullmatch(r"workbench[ a-z-]*|workbench AREA.*", span)
    ]
    return [
        Command(page, line)
        for line in dict.fromkeys([*lines, *spans])
        if re.match(r"(?:[A-Z_]+=\S+ )?workbench \S", line)
    ]


ALL = [command for page in PAGES for command in commands(page)]
DONE_HERE = [one for one in ALL if one.text not in NOT_RUN and not BY_CI.fullmatch(one.text)]
CASES = sorted({(one.page, one.tier) for one in DONE_HERE}, key=lambda case: (case[0].name, case[1]))


@dataclass
class Walk:
    """The scratch folder in which a page's commands are run, with what is still running in it."""

    folder: Path
    environment: dict[str, str]
    port: int
    serving: list[subprocess.Popen[bytes]] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    ends: list[str] = field(default_factory=list)
    servers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def line(self, text: str) -> str:
        """The command as it is run: smaller, the newest run for RUN, a free port for the page's."""
        for start, added in (SMALLER | self.added).items():
            if text.startswith(start):
                text = f"{text} {added}"
        for whole, part in SHORTER.items():
            text = text.replace(whole, part)
        text = RUN.sub(lambda found: self.newest(found[1]), text)
        return text.replace("8400", str(self.port))

    def newest(self, area: str) -> str:
        runs = sorted((self.folder / "data" / "runs" / area).iterdir(), key=lambda path: path.stat().st_mtime)
        return runs[-1].relative_to(self.folder).as_posix()

    def run(self, command: Command) -> subprocess.CompletedProcess[str]:
        """Run it to its end, or until it serves."""
        words = [sys.executable, "-m", *shlex.split(self.line(command.text))]
        if command.text.startswith(IN_BACKGROUND):
            return self.serve(words)
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S
        )

    def serve(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Start a server of the page and wait until it answers."""
        port = int(words[words.index("--port") + 1])
        with (self.folder / "served.log").open("w") as log:
            self.serving.append(subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=log, stderr=log))
        give_up = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up and self.serving[-1].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return subprocess.CompletedProcess(words, 0)
            time.sleep(0.05)
        return subprocess.CompletedProcess(words, 1, "", (self.folder / "served.log").read_text())

    def end(self) -> None:
        for process in self.serving:
            process.send_signal(signal.SIGTERM)
        for process in self.serving:
            process.wait(LIMIT_S)
        for text in self.ends:
            self.run(Command(self.folder, text))
        self.servers.close()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    folder = tmp_path / "checkout"
    (folder / "data" / "runs").mkdir(parents=True)
    for name in ("data/samples", "notebooks", "docs"):
        (folder / name).symlink_to(ROOT / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Nobody's browser is opened, and runs lie where the page says.
    chosen = {
        "WORKBENCH_OUT": str(folder / "data" / "runs"),
        "BROWSER": shutil.which("true") or "true",
        "COLUMNS": "200",
    }
    found = Walk(folder, {**os.environ, **chosen}, port)
    try:
        yield found
    finally:
        found.end()


def job_of_the_page(walk: Walk) -> None:
    """The failing job that the page shows as a file."""
    (code,) = [text for language, text in BLOCK.findall((GUIDE / "lore-how-to.md").read_text()) if language == "py"]
    (walk.folder / "job.py").write_text(code)


def few_queries(walk: Walk) -> None:
    """Three queries of TPC-H in place of its 22; the tables are made all the same."""
    every = benchmark_data.build_tpch_queries(0.01)
    (walk.folder / "few.sql").write_text(Suite("few", {name: every[name] for name in ("q1", "q6", "q14")}).format_sql())


def unit_of_the_page(walk: Walk) -> None:
    """`memory.py`, as the page has it."""
    blocks = [
        text for language, text in BLOCK.findall((GUIDE / "indicators-units.md").read_text()) if language == "python"
    ]
    (walk.folder / "memory.py").write_text(blocks[0])


def small_scenario(walk: Walk) -> None:
    """The scenario of the page, with ten short jobs; and a cluster of the test's own that is called local."""
    programs(kai=True)
    whole = walk.folder / "data" / "samples"
    whole.unlink()
    (whole / "scaletest" / "scenarios").mkdir(parents=True)
    text = (ROOT / SCENARIO).read_text()
    small = text.replace("n: 100", "n: 10").replace("lifetime: 30", "lifetime: 1")
    assert small != text
    (walk.folder / SCENARIO).write_text(small)
    place = walk.folder / "cache" / "workbench" / "scaletest"
    place.mkdir(parents=True)
    (place / "binaries").symlink_to(cache_folder() / "scaletest" / "binaries")
    walk.environment["XDG_CACHE_HOME"] = str(walk.folder / "cache")
    walk.ends.append("workbench scaletest cluster down")


def cluster_of_the_readme(walk: Walk) -> None:
    """The README's run takes a cluster that is up."""
    small_scenario(walk)
    done = walk.run(Command(ROOT / "README.md", "workbench scaletest cluster up --nodes 20"))
    assert done.returncode == 0, done.stderr


def recorded_job(walk: Walk) -> None:
    """What the page's first command measures, which takes the toolkit."""
    bench_sizing_calc.recorded(walk.folder / "out")


def toolkit(walk: Walk) -> None:
    """The toolkit with a workflow of its own."""
    python, plugins = natenv.require(), natenv.plugin(walk.folder)
    questions = walk.folder / "questions.json"
    questions.write_text('[{"id": 1, "question": "a", "answer": "b"}]')
    # Calls of 0.3 s: the first run also loads modules, and that must not hide how the runtime grows with the load.
    natenv.workflow(walk.folder, questions=questions, slots=1, call_s=0.3)
    walk.environment |= natenv.environment(plugins)
    walk.added[SLOPE] = f"--nat_python {python}"


def sessions_of_the_page(walk: Walk) -> None:
    """A database with a recorded session; it is too few for a history, which the report says."""
    database, sample = walk.folder / "data/runs/indicators.db", ROOT / "data/samples/indicators/numpy"
    with pytest.raises(SystemExit, match="0"):
        app.main(["indicators", "sync", str(sample), "--database", str(database)])


def bucket_of_the_page(walk: Walk) -> None:
    """An S3 server with the page's bucket."""
    import fsspec

    address = walk.servers.enter_context(s3_server.serve(s3_server.Faults()))
    walk.environment |= s3_server.client_environment(address) | {"XDG_CACHE_HOME": str(walk.folder / "cache")}
    given = {"key": s3_server.KEY, "secret": s3_server.SECRET, "endpoint_url": address, "skip_instance_cache": True}
    fsspec.filesystem("s3", **given).mkdir(s3_server.BUCKET)


def thresholds_of_a_project(walk: Walk) -> None:
    """`thresholds.yaml`, as `workbench init` lays it out."""
    (walk.folder / "thresholds.yaml").write_text(project.THRESHOLDS)


GUIDE = ROOT / "docs" / "guide"
SLOPE = "workbench sizing calc --config_file"
PREPARED: dict[tuple[str, str], Callable[[Walk], None]] = {
    ("lore-how-to.md", "spark"): job_of_the_page,
    ("speedup.md", "spark"): few_queries,
    ("indicators-units.md", QUICK): unit_of_the_page,
    ("indicators-how-to.md", "notebook"): sessions_of_the_page,
    ("scaletest.md", "cluster"): small_scenario,
    ("scaletest-how-to.md", "cluster"): small_scenario,
    ("README.md", "cluster"): cluster_of_the_readme,
    ("sizing-slope.md", QUICK): recorded_job,
    ("deploy.md", "notebook"): bucket_of_the_page,
    ("own-notebook.md", "notebook"): thresholds_of_a_project,
    ("sizing-slope.md", "network"): toolkit,
}


def within(
    walk: Walk, command: Command, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> subprocess.CompletedProcess[str]:
    """Run it in this process, which has the libraries loaded."""
    monkeypatch.chdir(walk.folder)
    for name, value in walk.environment.items():
        monkeypatch.setenv(name, value)
    words = shlex.split(walk.line(command.text))[1:]
    with pytest.raises(SystemExit) as ended:
        app.main(words)
    said = capfd.readouterr()
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), said.out, said.err)


@pytest.mark.parametrize(
    ("page", "tier"),
    [
        pytest.param(
            page, tier, marks=[] if tier == QUICK else getattr(pytest.mark, tier), id=f"{name_of(page)}-{tier}"
        )
        for page, tier in CASES
    ],
)
@pytest.mark.timeout(1800)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, tier: str, walk: Walk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    PREPARED.get((page.name, tier), lambda _: None)(walk)
    invalid = False
    for command in [one for one in DONE_HERE if (one.page, one.tier) == (page, tier)]:
        done = walk.run(command) if tier != QUICK else within(walk, command, monkeypatch, capfd)
        allowed = {0, 1} if command.text.startswith(JUDGED) else {0}
        # Of a run that this machine made no valid one of, nothing follows but a refusal.
        allowed |= {1, 2} if invalid and RUN.search(command.text) else set()
        invalid = invalid or done.returncode == 1
        assert done.returncode in allowed, f"{command.text}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


@pytest.mark.notebook
def test_the_nightly_script_of_the_page_sends_mail_when_a_limit_is_broken(walk: Walk) -> None:
    (script,) = [
        text for language, text in BLOCK.findall((GUIDE / "own-notebook.md").read_text()) if language == "bash"
    ]
    folder = walk.folder / "bench"
    project.lay_out_project(folder, with_samples=False)
    shutil.copyfile(GUIDE / "nightly_sort.ipynb", folder / "notebooks" / "nightly_sort.ipynb")
    (folder / "thresholds.yaml").write_text("nightly_sort: [{table: sort_times, column: time_ms, at_most: 0}]")
    (folder / "nightly.sh").write_text(script)
    (folder / "mail").write_text(f'#!/bin/sh\necho "$2" >> {folder}/sent\n')
    (folder / "mail").chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = walk.environment | {"PATH": path, "ALERT_TO": "you@example.com"}
    done = subprocess.run(["sh", str(folder / "nightly.sh")], env=environment, cwd=walk.folder, timeout=LIMIT_S)
    assert done.returncode == 1, (folder / "last.log").read_text()
    assert (folder / "sent").read_text() == "nightly_sort: invalid or past a limit\n"


@pytest.mark.notebook
def test_the_cells_of_the_hour_print_what_the_page_shows(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in walk.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    page = BLOCK.findall((ROOT / "docs" / "tutorials" / "own-hour.md").read_text())
    notebook = nbformat.read(ROOT / "notebooks" / "08_profile.ipynb", as_version=4)
    # The reader runs the cells that a batch run skips, then those of the page.
    own = [cell for cell in notebook.cells if "skip-execution" in cell.metadata.get("tags", [])]
    for cell in own:
        cell.metadata.tags = []
    notebook.cells += [nbformat.v4.new_code_cell(text.rstrip()) for language, text in page if language == "py"]
    (given,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    given.source = re.sub('"[^"]*tpch_sf0.1.zstd"', '"sample:tpch_sf0.1"', given.source)
    NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(walk.folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "\n".join(output.get("text") or output.data.get("text/plain", "") for output in outputs)
    printed = re.sub(r"\x1b\[\d*m", "", printed)
    shown = [text for language, text in page if language == "text"]
    assert len(shown) == 4
    assert [text for text in shown if " ".join(text.split()) not in " ".join(printed.split())] == []


def messages(page: Path) -> list[tuple[str, str]]:
    """Commands of a page's last table that fail, with what they say."""
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| `workbench ")]
    return [(row[0].strip("`"), row[1]) for row in rows if len(row) == 3]


@pytest.mark.parametrize("page", [page for page in PAGES if messages(page)], ids=name_of)
def test_what_fails_says_what_the_page_says(
    page: Path, walk: Walk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if page.name == "indicators-units.md":
        unit_of_the_page(walk)
    found = []
    for text, _ in messages(page):
        done = within(walk, Command(page, text), monkeypatch, capfd)
        said = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        found.append((text, said[0].removeprefix("Error: ") if done.returncode == 2 and said else done.stderr))
    assert found == messages(page)
