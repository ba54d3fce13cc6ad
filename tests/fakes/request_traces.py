"""Traces of our own in the public formats: Azure's CSV and Mooncake's JSON lines."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


def draw_requests(n: int, seed: int = 0, rate_per_s: float = 5.0) -> list[dict[str, Any]]:
    """Requests of a few conversations: arrival in ms, lengths, and blocks that a conversation's turns share."""
    draw = random.Random(seed)
    found, now_ms = [], 0.0
    conversations: dict[int, list[int]] = {}
    for block in range(n):
        now_ms += draw.expovariate(rate_per_s) * 1000
        talk = draw.randrange(max(2, n // 4))
        blocks = [*conversations.get(talk, []), block]
        conversations[talk] = blocks if len(blocks) < 4 else []
        length = 512 * (len(blocks) - 1) + draw.randint(1, 512)
        row = {"timestamp": round(now_ms), "input_length": length, "output_length": draw.randint(1, 40)}
        found.append(row | {"hash_ids": blocks})
    return found


def write_mooncake(path: Path, n: int, seed: int = 0) -> list[dict[str, Any]]:
    """A file of JSON lines, and its rows."""
    rows = draw_requests(n, seed)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def write_azure(path: Path, n: int, seed: int = 0, *, zone: str = "") -> list[dict[str, Any]]:
    """A file with the columns of the public traces, and its rows."""
    rows, begin = draw_requests(n, seed), datetime(2023, 11, 16, 18, 15, 46, tzinfo=UTC)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for row in rows:
        at = begin + timedelta(milliseconds=row["timestamp"])
        lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f}0{zone},{row['input_length']},{row['output_length']}")
    path.write_text("\n".join(lines) + "\n")
    return rows


def write_sessions(
    path: Path, n: int, seed: int = 0, *, rate_per_s: float = 20.0, pause_s: float = 0.05
) -> list[dict[str, Any]]:
    """Sessions of one to six turns in Mooncake's lines, interleaved as they were recorded, and the lines."""
    draw = random.Random(seed)
    lines: list[tuple[float, dict[str, Any]]] = []
    begin_s = 0.0
    for number in range(n):
        begin_s += draw.expovariate(rate_per_s)
        at_s = begin_s
        for turn in range(draw.randint(1, 6)):
            pause = round(1000 * draw.uniform(0.2, 1.8) * pause_s)
            at_s += pause / 1000 if turn else 0.0
            when = {"delay": pause} if turn else {"timestamp": round(1000 * begin_s)}
            sizes = {"input_length": draw.randint(5, 60), "output_length": draw.randint(2, 12)}
            lines.append((at_s, {"session_id": f"s{number}", **when, **sizes}))
    rows = [row for _, row in sorted(lines, key=lambda line: line[0])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows
