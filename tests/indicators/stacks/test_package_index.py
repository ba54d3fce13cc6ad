"""What the index has: versions that fit, which file is best, sizes; and what is said when it cannot be asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.indicators.stacks.making import SMALL, Form, Made, Served, local_index
from workbench.core.errors import InputError, RunFailedError, WorkbenchError
from workbench.indicators.stacks import package_index as module
from workbench.indicators.stacks.package_index import PackageIndex, build_target
from workbench.indicators.stacks.uv_tool import Sources

Serve = Callable[..., Served]
WINDOWS, LINUX = "cp312-cp312-win_amd64", "cp312-cp312-manylinux_2_17_x86_64"
RICH = (
    Made("aaa", "1.0"),
    Made("aaa", "1.1", yanked=True),
    Made("aaa", "1.2", requires_python=">=3.13"),
    Made("aaa", "1.3", tag=WINDOWS),
    Made("aaa", "1.4", uploaded="2024-06-30T12:00:00Z"),
    Made("aaa", "1.5", uploaded=None),
    Made("aaa", "2.0rc1"),
)


def index(
    url: str, python: str = "3.12", platform: str | None = "x86_64-manylinux_2_28", **more: object
) -> PackageIndex:
    return PackageIndex(Sources((url,), **more), build_target(python, platform))  # type: ignore[arg-type]


def listed(found: PackageIndex, specifier: str = "", before: datetime | None = None) -> list[str]:
    return [str(version) for version in found.list_versions("aaa", SpecifierSet(specifier), before)]


@pytest.mark.parametrize("form", ["json", "html"])
def test_versions_are_those_with_a_wheel_that_fits_newest_first(serve: Serve, form: Form) -> None:
    assert listed(index(serve(RICH, form).url)) == ["1.5", "1.4", "1.0"]


def test_yanked_ones_count_only_when_pinned_and_pre_releases_only_when_named(serve: Serve) -> None:
    found = index(serve(RICH).url)
    assert listed(found, "==1.1") == ["1.1"]
    assert listed(found, ">=1.1,<1.2") == []
    assert listed(found, "==1.*") == ["1.5", "1.4", "1.0"]
    assert listed(found, ">=2.0rc1") == ["2.0rc1"]
    assert listed(found, ">=2") == []


def test_a_limit_drops_later_files_and_those_without_a_time(serve: Serve) -> None:
    found = index(serve(RICH).url)
    assert listed(found, before=datetime(2024, 6, 30, 12, tzinfo=UTC)) == ["1.0"]
    assert listed(found, before=datetime(2024, 6, 30, 12, 0, 1, tzinfo=UTC)) == ["1.4", "1.0"]
    assert found.has_untimed_wheels("aaa")


def test_the_best_file_of_a_version_goes_first(serve: Serve) -> None:
    wheels = [Made("aaa", "1.0", tag=tag) for tag in ("py3-none-any", WINDOWS, LINUX)]
    wheels += [Made("aaa", "1.0-2", tag=LINUX)]
    names = [one.name for one in index(serve(wheels).url).list_files("aaa", "1.0")]
    assert names == [f"aaa-1.0-2-{LINUX}.whl", f"aaa-1.0-{LINUX}.whl", "aaa-1.0-py3-none-any.whl"]


def test_sizes_come_from_the_page_else_by_asking_the_server_once_and_may_be_unknown(serve: Serve) -> None:
    told, silent, lost = Made("aaa", "1.0"), Made("aaa", "2.0", tells_size=False), Made("aaa", "3.0", tells_size=False)
    served = serve([told, silent, lost])
    found = index(served.url)
    files = {version: found.list_files("aaa", version)[0] for version in ("1.0", "2.0", "3.0")}
    served.wheels.remove(lost)
    sizes = [found.size_bytes(files[version]) for version in ("1.0", "2.0", "2.0", "3.0")]
    assert sizes == [len(told.content), len(silent.content), len(silent.content), None]
    heads = [path for method, path in served.asked if method == "HEAD"]
    assert heads == [f"/files/{one.file_name}" for one in (silent, lost)]


@pytest.mark.parametrize("pages", [True, False])
def test_a_local_folder_is_an_index_with_or_without_pages(tmp_path: Path, pages: bool) -> None:
    url = local_index(tmp_path / "an index", SMALL, pages=pages).as_uri()
    (one,) = index(url).list_files("aaa", "1.0")
    made = SMALL[0]
    assert (one.sha256, one.size_bytes) == (made.sha256, len(made.content))
    assert index(url).has_untimed_wheels("aaa") is not pages
    assert listed(index(url)) == ["2.0", "1.1", "1.0"]
    # A flat folder adds to the index.
    flat = Made("aaa", "9.0")
    (tmp_path / flat.file_name).write_bytes(flat.content)
    (tmp_path / "not a wheel.whl").write_bytes(b"")
    assert listed(index(url, find_links=(tmp_path.as_uri(),))) == ["9.0", "2.0", "1.1", "1.0"]


def test_the_first_index_that_has_the_package_is_the_only_one(serve: Serve) -> None:
    first, second = serve([Made("aaa", "1.0")]), serve([Made("aaa", "5.0"), Made("bbb", "1.0")])
    here = build_target("3.12", "x86_64-manylinux_2_28")
    found = PackageIndex(Sources((first.url, second.url)), here)
    assert listed(found) == ["1.0"]
    assert len(found.list_wheels("bbb")) == 1
    # A page is asked for once.
    found.prefetch_pages(["aaa", "bbb", "aaa"])
    found.list_wheels("AAA")
    assert (first.asked.count(("GET", "/simple/aaa/")), second.asked.count(("GET", "/simple/bbb/"))) == (1, 1)
    assert listed(PackageIndex(Sources((first.url, second.url), strategy="unsafe-best-match"), here)) == ["5.0", "1.0"]


def test_user_and_password_are_sent_and_shown_to_nobody(serve: Serve) -> None:
    served = serve(SMALL, password="p%40ss")
    assert listed(index(served.with_password.replace("p%40ss", "p%2540ss"))) == ["2.0", "1.1", "1.0"]
    with pytest.raises(RunFailedError, match=r"the package index refuses[\s\S]*HTTP 401") as caught:
        index(served.url.replace("://", "://bob:s3cret@")).list_wheels("aaa")
    assert "s3cret" not in str(caught.value)


def test_a_package_that_is_not_there_and_other_schemes_are_named(serve: Serve) -> None:
    with pytest.raises(InputError, match="no such package on the index: nope"):
        index(serve(SMALL).url).list_wheels("nope")
    with pytest.raises(InputError, match="not a package index URL"):
        index("ftp://example.org/simple").list_wheels("aaa")


def test_an_index_that_cannot_be_reached_ends_with_code_3_and_advice(serve: Serve) -> None:
    with pytest.raises(WorkbenchError) as caught:
        # Port 9 is kept for a service that nobody runs.
        index("http://ann:s3cret@127.0.0.1:9/simple").list_wheels("aaa")
    said = str(caught.value)
    assert caught.value.exit_code == 3
    assert "where: http://127.0.0.1:9/simple/aaa/" in said
    assert "UV_DEFAULT_INDEX" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ((503, "busy"), RunFailedError, "HTTP 503"),
        ((200, "welcome to this network, please log in"), InputError, "not a package index page"),
        ((200, "x" * 5000), InputError, "too large"),
    ],
)
def test_a_failing_index_and_an_answer_that_is_no_page_are_told_apart_from_a_missing_package(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str], kind: type[Exception], told: str
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 10)
    served = serve(SMALL)
    served.answers["/simple/aaa/"] = answer
    with pytest.raises(kind, match=told):
        index(served.url).list_wheels("aaa")
