"""Script that makes workbench/speedup/spark_functions.json from installed packages of pyspark.

    python docs/extract_spark_functions.py FOLDER_OF_PYSPARK...

A plan names an expression by its function, or by its class in lower case: both are Spark's own, and every other name
in a plan is a function of a user. Functions are those that Spark's SQL lists, classes those of the jars. Licence of
both: Apache-2.0, see NOTICE.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from workbench.core.files import write_text

OUT = Path(__file__).parents[1] / "workbench" / "speedup" / "spark_functions.json"
CLASSES = re.compile(
    r"org/apache/spark/sql/(?:catalyst/(?:expressions|optimizer)/(?:[a-z]+/)*|execution/)([A-Z]\w*)\.class"
)
NAME = re.compile(r"[a-z][a-z0-9_]+")
# Kinds of constants of a class file, and how long they are behind the kind; wide ones take two numbers.
UTF8, STRING, WIDE = 1, 8, (5, 6)
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
LIST_FUNCTIONS = (
    "from pyspark.sql import SparkSession as S; s = S.builder.master('local[1]').getOrCreate(); "
    "print('\\n'.join('>' + row[0] for row in s.sql('show functions').collect()))"
)


def list_classes(folder: Path) -> set[str]:
    """Names of classes as plans write them: in lower case, or as a text in a class that names itself."""
    names: set[str] = set()
    for jar in sorted((folder / "jars").glob("spark-*.jar")):
        with zipfile.ZipFile(jar) as content:
            for path in content.namelist():
                if match := CLASSES.fullmatch(path):
                    names |= {match[1].lower(), *list_own_names(content.read(path))}
    return names


def read_constants(code: bytes) -> tuple[dict[int, str], list[int]]:
    """Texts in the constants of a class file, by number, and the numbers of those that its code uses as strings."""
    texts: dict[int, str] = {}
    used: list[int] = []
    place, number = 10, 1
    while number < int.from_bytes(code[8:10], "big"):
        tag = code[place]
        if tag == UTF8:
            length = int.from_bytes(code[place + 1 : place + 3], "big")
            texts[number] = code[place + 3 : place + 3 + length].decode("utf-8", "replace")
            place += 3 + length
        else:
            if tag == STRING:
                used.append(int.from_bytes(code[place + 1 : place + 3], "big"))
            place += 1 + SIZES[tag]
        number += 2 if tag in WIDE else 1
    return texts, used


def list_own_names(code: bytes) -> set[str]:
    """Texts of a class file that may be its own name in a plan; none where it does not name itself."""
    texts, used = read_constants(code)
    return {texts[at] for at in used if NAME.fullmatch(texts[at])} if "prettyName" in texts.values() else set()


def list_functions(folder: Path) -> set[str]:
    """Names of functions of SQL, as this Spark lists them."""
    told = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", LIST_FUNCTIONS],
        env=os.environ | {"PYTHONPATH": str(folder.parent), "SPARK_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line[1:].lower() for line in told.stdout.splitlines() if re.fullmatch(r">\w+", line)}


def main(folders: list[Path]) -> None:
    names = sorted(set[str]().union(*(find(folder) for folder in folders for find in (list_functions, list_classes))))
    versions = [re.search(r"(\d[\w.]+)", (folder / "version.py").read_text())[1] for folder in folders]  # type: ignore[index]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    content = {"package": [f"pyspark {version}" for version in versions], "licence": "Apache-2.0", "sha256": digest}
    write_text(OUT, json.dumps(content | {"names": names}, indent=0) + "\n")
    print(f"{len(names)} names of {', '.join(versions)}")  # noqa: T201


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
