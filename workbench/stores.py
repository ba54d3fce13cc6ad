"""Places that are no folder of this machine: URLs, opened by fsspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.errors import InputError
from workbench.redaction import without_user_info

# Packages that fsspec looks for, by the kind of URL.
DRIVERS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "hdfs": "pyarrow",
}


def open_store(url: str, *, told: Callable[[str], str] = without_user_info) -> tuple[Any, str]:
    """The store that a URL lies in, and its path there. Nothing is asked of the store yet.

    Parameters
    ----------
    told
        Cleans what an error says of the URL, which may hold a secret.

    Raises
    ------
    InputError
        This kind of URL cannot be opened here; says which package opens it.

    Examples
    --------
    >>> store, root = open_store("memory://logs/a.zstd")
    >>> store.protocol, root
    ('memory', '/logs/a.zstd')
    """
    # Loading it takes 70 ms.
    import fsspec

    try:
        store, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        scheme = url.partition("://")[0]
        package = DRIVERS.get(scheme)
        raise InputError(
            "this kind of URL cannot be opened here",
            where=told(url),
            found=told(str(error))[:300],
            do=f"pip install {package}"
            if package
            else "install the fsspec package for it (for example: pip install s3fs)",
        ) from error
    return store, str(root)
