"""How many nodes do shapes of several sizes need? First fit, the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import ConfigError

Ints = NDArray[np.int64]


def whole_nodes(size: int, node: int) -> int:
    """Nodes that a shape larger than a node takes for itself."""
    return -(-size // node)


def first_fit(counts: Ints, sizes: Sequence[int], node: int, *, spanning: bool = False) -> Ints:
    """Nodes that the shapes need when each goes to the first node with room, the largest shapes first.

    Parameters
    ----------
    counts
        How many there are of each shape, shape (cases, sizes), 0 or more.
    sizes
        GPUs of each shape, 1 or more.
    node
        GPUs of a node.
    spanning
        Shapes larger than a node get whole nodes for themselves; else they are refused.

    Returns
    -------
    array
        Nodes of each case, shape (cases,).

    Raises
    ------
    ConfigError
        A shape that is needed is larger than a node.

    Notes
    -----
    First fit decreasing needs at most 11/9 of the fewest nodes and 6/9 (Dósa 2007). Nodes of equal room lie next to
    each other and are counted as one group, so it takes no longer for a thousand nodes than for ten. Does not show
    topology, other resources than GPUs, or what a scheduler makes of pods that come and go.

    Examples
    --------
    >>> first_fit(np.array([[1, 2, 2], [0, 0, 0]]), [8, 5, 3], 8).tolist()
    [3, 0]
    """
    merged, sizes = _merged(np.asarray(counts, dtype=np.int64), sizes)
    distinct, which = _distinct(merged)
    large = [column for column, size in enumerate(sizes) if size > node]
    if large and not spanning and distinct[:, large].any():
        raise ConfigError(
            "a shape is larger than a node",
            found=[f"{sizes[column]} GPUs" for column in large],
            allowed=f"up to {node} GPUs, a node",
            do="larger nodes (gpus_per_node), or spanning=true: whole nodes for each",
        )
    nodes = np.zeros(len(distinct), dtype=np.int64)
    for column in large:
        nodes += distinct[:, column] * whole_nodes(sizes[column], node)
    fitting = [column for column in range(len(sizes)) if column not in large]
    nodes += _packed(distinct[:, fitting], [sizes[column] for column in fitting], node)
    return np.asarray(nodes[which], dtype=np.int64)


def _merged(counts: Ints, sizes: Sequence[int]) -> tuple[Ints, list[int]]:
    """Shapes of one size as one."""
    different = sorted(set(sizes), reverse=True)
    columns = [sum((counts[:, at] for at, one in enumerate(sizes) if one == size), _none(counts)) for size in different]
    return np.stack(columns, axis=1), different


def _none(counts: Ints) -> Ints:
    return np.zeros(len(counts), dtype=np.int64)


def _distinct(counts: Ints) -> tuple[Ints, Ints]:
    """The different cases, and which of them each case is; as one number each where that is short enough."""
    spans = counts.max(axis=0, initial=0) + 1
    if counts.shape[1] == 0 or np.log2(spans.astype(np.float64)).sum() >= 62:
        distinct, which = np.unique(counts, axis=0, return_inverse=True)
        return distinct, np.asarray(which.reshape(-1), dtype=np.int64)
    weights = np.append(np.cumprod(spans[:0:-1])[::-1], 1)
    _, first, which = np.unique(counts @ weights, return_index=True, return_inverse=True)
    return counts[first], np.asarray(which, dtype=np.int64)


def _packed(counts: Ints, sizes: list[int], node: int) -> Ints:
    """Nodes of each case, all shapes fitting into one."""
    cases = len(counts)
    # Groups of nodes with equal room, in the order of the nodes; at first all are empty, and there are enough.
    case = np.arange(cases)
    many, room = counts.sum(axis=1) + 1, np.full(cases, node, dtype=np.int64)
    for column in sorted(range(len(sizes)), key=lambda one: -sizes[one]):
        case, many, room = _placed(case, many, room, counts[:, column], sizes[column])
    used = np.bincount(case, weights=many * (room < node), minlength=cases)
    return np.asarray(np.rint(used), dtype=np.int64)


def _placed(case: Ints, many: Ints, room: Ints, wanted: Ints, size: int) -> tuple[Ints, Ints, Ints]:
    """The groups after so many shapes of one size went to the first nodes with room for them."""
    each = room // size
    fits = many * each
    taken = np.clip(wanted[case] - _before(case, fits), 0, fits)
    full, rest = np.divmod(taken, np.maximum(each, 1))
    # A group falls into nodes that are filled, one that gets what is left, and nodes that stay as they were.
    parts: list[tuple[Any, Any]] = [(full, room - each * size), (rest > 0, room - rest * size)]
    parts.append((many - full - (rest > 0), room))
    counted = np.stack([part for part, _ in parts], axis=1).astype(np.int64)
    left = np.stack([part for _, part in parts], axis=1)
    kept = counted.reshape(-1) > 0
    return np.repeat(case, 3)[kept], counted.reshape(-1)[kept], left.reshape(-1)[kept]


def _before(case: Ints, fits: Ints) -> Ints:
    """How much the earlier groups of the same case can take."""
    total = np.cumsum(fits) - fits
    first = np.searchsorted(case, case, side="left")
    return np.asarray(total - total[first], dtype=np.int64)
