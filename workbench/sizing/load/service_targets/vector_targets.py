"""Targets for embeddings and reranking: answers without tokens, whose goals are on the runtime."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from workbench.sizing.load.client_messages import (
    NO_EXTRA,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    RequestExtra,
    clock,
    shorten_detail,
)
from workbench.sizing.load.service_targets.http_target import HttpTarget
from workbench.sizing.load.service_targets.openai_target import parse_answer, read_bounded_body, read_count

QUERY_WORDS, N_DOCUMENTS = 12, 8
"""Of a prompt that is reranked: the words of the query, and the documents that the others make."""


class VectorTarget(HttpTarget):
    """One JSON object out, one in; the answer is checked for what was asked."""

    def __init__(self, url: str, *, model: str, extra: Mapping[str, Any], **shared: Any) -> None:
        super().__init__(url, **shared)
        fields = {"model": model, **extra}
        self._fixed = {name: value for name, value in fields.items() if value is not None}

    @abstractmethod
    def build_content(self, prompt: str) -> dict[str, Any]:
        """Fields of the body that hold the prompt."""

    @abstractmethod
    def find_fault(self, document: dict[str, Any]) -> str | None:
        """What is wrong with an answer; null where nothing is."""

    def request_body(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> bytes:
        """Body with the prompt; there is no session and no length of an answer."""
        del extra
        return orjson.dumps(self._fixed | self.build_content(prompt))

    async def read_reply(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Read the whole answer."""
        del sent
        text = await read_bounded_body(response, self._max_bytes)
        ended = clock()
        document = parse_answer(text)
        if not isinstance(document, dict):
            raise MalformedAnswerError("answer is no JSON object")
        if document.get("error"):
            raise FailedAnswerError(shorten_detail(document["error"]))
        if fault := self.find_fault(document):
            raise MalformedAnswerError(fault)
        usage = document.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        told = (read_count(counts.get(name)) for name in ("prompt_tokens", "input_tokens", "total_tokens"))
        return Reply(
            "ok", ended, status=response.status, input_tokens=next((count for count in told if count is not None), None)
        )


class EmbeddingsTarget(VectorTarget):
    """`POST {url}/v1/embeddings`: one vector of the prompt."""

    def build_content(self, prompt: str) -> dict[str, Any]:
        """The prompt is the input."""
        return {"input": prompt}

    def find_fault(self, document: dict[str, Any]) -> str | None:
        """A vector, as numbers or packed into a text."""
        rows = document.get("data")
        first = rows[0] if isinstance(rows, list) and rows else None
        vector = first.get("embedding") if isinstance(first, dict) else None
        if isinstance(vector, str) and vector:
            return None
        if not isinstance(vector, list) or not vector:
            return "answer without an embedding"
        is_number = all(isinstance(number, int | float) and not isinstance(number, bool) for number in vector)
        return None if is_number else "an embedding that is not all numbers"


class RerankTarget(VectorTarget):
    """`POST {url}/v1/rerank`: the documents of a prompt in the order of their relevance.

    The first words of a prompt are the query, the others its documents, unless `extra` brings those.
    """

    def build_content(self, prompt: str) -> dict[str, Any]:
        """Query and documents."""
        words = prompt.split()
        query, rest = words[:QUERY_WORDS], words[QUERY_WORDS:] or words
        size = -(-len(rest) // N_DOCUMENTS) or 1
        documents = [" ".join(rest[place : place + size]) for place in range(0, len(rest), size)] or [prompt]
        return {"query": " ".join(query), "documents": documents} | {
            name: self._fixed[name] for name in ("query", "documents") if name in self._fixed
        }

    def find_fault(self, document: dict[str, Any]) -> str | None:
        """Results with an index and a score each."""
        results = document.get("results")
        if not isinstance(results, list) or not results:
            return "answer without results"
        for result in results:
            score = result.get("relevance_score") if isinstance(result, dict) else None
            if not isinstance(score, int | float) or not isinstance(result.get("index"), int):
                return "a result without index and relevance_score"
        return None
