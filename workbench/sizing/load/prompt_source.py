"""Builds the prompts of a sweep from its settings, and describes them for its record."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.sizing.load import token_lengths
from workbench.sizing.load.request_plan import Prompts, read_prompts
from workbench.sizing.load.request_trace import RequestTrace, read_request_trace

if TYPE_CHECKING:
    from workbench.sizing.config import SweepConfig

N_CHECKED_PROMPTS = 64


def build_prompts(config: SweepConfig) -> tuple[Prompts, dict[str, Any]]:
    """Prompts and answer lengths of a sweep, and what its record says of them."""
    trace = read_request_trace(config.trace) if config.trace is not None else RequestTrace([])
    tokenizer = token_lengths.load_tokenizer(config.tokenizer) if config.tokenizer else None
    texts = [] if config.prompts is None else read_prompts(config.prompts, config.prompt_key)
    prompts = Prompts(
        texts,
        config.input_tokens,
        config.input_cv,
        config.unique_prefix,
        config.seed,
        words=[] if tokenizer is None or texts else token_lengths.choose_prompt_words(tokenizer),
        trace_input=[] if texts else trace.input_tokens,
        trace_output=trace.output_tokens,
        trace_blocks=[] if texts else trace.block_ids,
        output_tokens=config.output_tokens,
        output_cv=config.output_cv,
    )
    described: dict[str, Any] = {"made": not texts}
    if config.prompts is not None:
        described |= {"rows": len(texts), "different": len(set(texts)), "sha256": files.hash_file(config.prompts)}
    elif not trace.input_tokens:
        described |= {"tokens": config.input_tokens, "cv": config.input_cv}
    if trace.input_tokens:
        described |= trace.describe()
    if tokenizer is not None:
        described |= _describe_token_lengths(prompts, tokenizer)
    return prompts, described


def _describe_token_lengths(prompts: Prompts, tokenizer: Any) -> dict[str, Any]:
    """By the tokenizer: lengths of the user's prompts, or how many of the generated ones are as long as asked."""
    taken = list(itertools.islice(prompts.iterate_items(0, 0, 1), N_CHECKED_PROMPTS))
    counts = token_lengths.count_tokens(tokenizer, (text for _, text in taken))
    if prompts.texts:
        return {"median_tokens": sorted(counts)[len(counts) // 2], "max_tokens": max(counts)}
    # A prompt has as many words as tokens were asked for.
    wrong = [count - len(text.split(" ")) for count, (_, text) in zip(counts, taken, strict=True)]
    return {"checked": len(taken), "exact": wrong.count(0), "max_error_tokens": max(map(abs, wrong))}
