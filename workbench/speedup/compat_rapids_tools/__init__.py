"""The seed method: exact reproduction of the RAPIDS tools v24.08 and their scripts, faults included.

Kept apart from everything else, so that results can be compared with those of the originals. What is wrong with it is
listed in `docs/guide/speedup-seed-method.md`.
"""
