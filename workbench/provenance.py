"""Where a report came from: the run, its command, parameters, inputs, machine and versions, as one box."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.formats import NULL, duration, escape, moment, number, size


def provenance_html(record: Mapping[str, Any]) -> str:
    """The contents of run.json for people; everything escaped, what is unknown is a dash."""
    host: Mapping[str, Any] = record.get("host") or {}
    facts = {
        "Run": record.get("run_id"),
        "Notebook": record.get("notebook"),
        "Started": moment(record.get("started_at")),
        "Took": duration(record.get("duration_s")),
        "Status": record.get("status"),
        "Command": record.get("command"),
        "Package": f"workbench {record.get('package_version') or NULL}",
        "Commit": record.get("git_commit"),
        "Machine": _machine(host),
        "System": host.get("os"),
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{_fact(name, value)}</dd></div>" for name, value in facts.items())
    return (
        f'<dl class="facts">{rows}</dl>' + _inputs(record) + _parameters(record) + _tables(record) + _versions(record)
    )


def _fact(name: str, value: object) -> str:
    text = escape(value) if value else NULL
    return f"<code>{text}</code>" if name in ("Run", "Command", "Commit") and value else text


def _machine(host: Mapping[str, Any]) -> str:
    parts = [
        str(host.get("cpu_model") or ""),
        f"{number(host['cores'])} cores" if host.get("cores") else "",
        f"{size(host['memory_bytes'])} memory" if host.get("memory_bytes") else "",
        ", ".join(_accelerator(entry) for entry in host.get("accelerators") or []) or "no accelerator",
        f"load {number(host['load_1m'])}" if host.get("load_1m") is not None else "",
    ]
    limits = host.get("container_limits") or {}
    parts += [
        f"limit {key.replace('_', ' ')} {_limit(key, value)}" for key, value in limits.items() if value is not None
    ]
    return ", ".join(part for part in parts if part)


def _limit(key: str, value: object) -> str:
    return size(value) if key.endswith("_bytes") and isinstance(value, int | float) else number(value)


def _accelerator(entry: object) -> str:
    return str(entry.get("name") or entry) if isinstance(entry, Mapping) else str(entry)


def _grid(title: str, heads: list[str], rows: list[list[str]], *, opened: bool) -> str:
    if not rows:
        return f'<p class="none"><strong>{title}:</strong> none</p>'
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    table = f'<table class="wb-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    box = f'<div class="wb-scroll" tabindex="0">{table}</div>'
    return f"<details{' open' if opened else ''}><summary>{title} ({len(rows)})</summary>{box}</details>"


def _inputs(record: Mapping[str, Any]) -> str:
    rows = [
        [
            escape(entry.get("path", NULL)),
            escape(size(entry.get("bytes"))),
            f"<code>{escape(entry.get('sha256') or NULL)}</code>",
        ]
        for entry in record.get("inputs") or []
    ]
    return _grid("Inputs", ["path", "size", "sha256"], rows, opened=True)


def _parameters(record: Mapping[str, Any]) -> str:
    rows = [
        [escape(name), f"<code>{escape(_parameter(value))}</code>"]
        for name, value in (record.get("config") or {}).items()
    ]
    return _grid("Parameters", ["name", "value"], rows, opened=True)


def _parameter(value: object) -> str:
    return NULL if value is None else str(value)


def _tables(record: Mapping[str, Any]) -> str:
    rows = [
        [escape(entry.get("name", NULL)), escape(number(entry.get("rows")))] for entry in record.get("tables") or []
    ]
    return _grid("Tables beside this page", ["name", "rows"], rows, opened=False)


def _versions(record: Mapping[str, Any]) -> str:
    rows = [[escape(name), escape(version or NULL)] for name, version in (record.get("versions") or {}).items()]
    return _grid("Versions", ["library", "version"], rows, opened=False)
