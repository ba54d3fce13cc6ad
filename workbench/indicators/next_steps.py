"""What to do with a recommendation: which stack to install or keep, and how to measure one's own work."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.effects import Compared
    from workbench.indicators.recommending.request import Request
    from workbench.indicators.recommending.result import Recommendation


def of_recommendation(found: Compared, said: Recommendation, folder: str, *, live: bool) -> list[str]:
    """The decision, and what would make it one's own.

    Parameters
    ----------
    found, said
        The session, and what is recommended from it.
    folder
        Of the session, as a command names it.
    live
        It was measured now, on this machine.
    """
    processor = found.observed.session.hardware.cpu_model
    own = f"Measured on {processor}: on your hardware, with your stacks, `workbench run indicators -p live=true`."
    weigh = "Weigh what your work is made of: `-p mix=Sort=0.7,Matmul=0.3`; all metrics count the same without it."
    more = [] if said.request.mix else [weigh]
    more += [] if live else [own]
    if not found.valid:
        return ["Choose nothing by this session. Measure again on a quieter machine.", *([] if live else [own])]
    return [_decided(said, folder), *more]


def _decided(said: Recommendation, folder: str) -> str:
    answer = said.answer
    if answer.stack is None:
        return "Choose nothing yet: the table of what was left out says which constraint or check to look at."
    words = ["workbench", "indicators", "recommend", folder, *_asked(said.request)]
    pinned = f"`{shlex.join([*words, '--requirements', 'requirements.txt'])}`"
    told = {
        "better": f"Install {answer.stack}; pinned, with hashes: {pinned}.",
        "best left": f"Install {answer.stack}, since the baseline is left out; pinned, with hashes: {pinned}.",
        "by type": f"Install {answer.stack} if that is what you want: it was not chosen for speed alone.",
        "not decided": f"Stay with {answer.stack}: more rounds may tell, `workbench indicators run` with `--rounds`.",
    }
    return told.get(answer.kind, f"Stay with {answer.stack}: no stack is better by more than what matters.")


def _asked(request: Request) -> list[str]:
    """The options that ask for the same again: by others another stack may be the answer."""
    mix = ["--mix", request.mix] if request.mix else []
    kind = ["--type", request.type] if request.type != "performance" else []
    needed = [word for one in request.require for word in ("--require", one)]
    seed = ["--seed", str(request.seed)] if request.seed else []
    return [*mix, *kind, *needed, *seed]
