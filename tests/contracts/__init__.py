"""What users of the workbench rely on, frozen as files: command lines, documents, tables, formats, and what they keep.

`python -m tests.contracts [NAME...]` writes the files below `frozen/` anew, on purpose, and prints what changed; the
commit that does so says why. `tests/contracts/keeping.py` made what lies below `kept/`, which never changes again.
"""
