"""Answers on disk: each different one once, under its digest, whichever sessions gave it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from workbench import files
from workbench.errors import InputError
from workbench.speedup.recording.answers import Answer

MAX_ANSWER_BYTES = 1 << 30


class Store:
    """The folder `answers/`: `<sha256>.json.zst` with an answer, `<label>-s<n>.json` with query to digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, session: str, lines: Iterable[bytes]) -> None:
        """Keep the answers that a session wrote, then say which they are."""
        index = {}
        for line in lines:
            answer = json.loads(line)
            query = answer.pop("query")
            index[query] = self._keep(answer)
        files.write_text(self.folder / f"{session}.json", json.dumps(index, indent=1) + "\n")

    def _keep(self, answer: dict[str, Any]) -> str:
        rows = answer["rows"]
        # Without order, but for the last row: ties are told by it.
        ordered = answer | {"rows": sorted(json.dumps(row, ensure_ascii=False) for row in rows), "last": rows[-1:]}
        if answer["limit"] is None:
            del ordered["last"]
        digest = hashlib.sha256(json.dumps(ordered, ensure_ascii=False).encode()).hexdigest()
        path = self._path(digest)
        if not path.exists():
            with files.replacing(path) as temporary:
                content = json.dumps(answer, ensure_ascii=False).encode()
                temporary.write_bytes(zstandard.ZstdCompressor(level=12).compress(content))
        return digest

    def index(self, session: str) -> dict[str, str]:
        """Query to digest of a session's answers; empty when they were put away."""
        try:
            found = json.loads((self.folder / f"{session}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise InputError("unreadable answers", where=self.folder / f"{session}.json", found=str(error)) from error
        if not isinstance(found, dict):
            raise InputError("unreadable answers", where=self.folder / f"{session}.json", found=type(found).__name__)
        return {str(query): str(digest) for query, digest in found.items()}

    def get(self, digest: str) -> Answer:
        """The answer of this digest.

        Raises
        ------
        InputError
            It is not there, or damaged.
        """
        path = self._path(digest)
        try:
            packed = path.read_bytes()
            if not 0 < zstandard.frame_content_size(packed) <= MAX_ANSWER_BYTES:
                raise ValueError(f"its size is not told, or is above {MAX_ANSWER_BYTES >> 20} MiB")
            content = zstandard.ZstdDecompressor().decompress(packed)
            return Answer.of(json.loads(content))
        except (OSError, ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as error:
            raise InputError("unreadable answer", where=path, found=str(error)[:200]) from error

    def _path(self, digest: str) -> Path:
        if not digest.isalnum():
            raise InputError("no digest", where=self.folder, found=digest[:80])
        return self.folder / f"{digest}.json.zst"
