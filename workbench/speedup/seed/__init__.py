"""The seed method: the original scripts' and the v24.08 qualification tool's arithmetic, faults included.

Kept apart from everything else, so that results can be compared with those of the originals. What is wrong with it is
listed in `docs/guide/speedup-seed-method.md`.
"""
