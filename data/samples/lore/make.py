"""Make the sample tables anew, the same bytes each time with the locked libraries: python data/samples/lore/make.py"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import numpy as np
import polars as pl

SEED = 5
PRODUCTS, SALES, PRICES_EACH, DAYS = 200, 120_000, 182, 728
# One sale in five is of one product: what makes one partition of the join larger than the others.
HOT_PRODUCT, HOT_SHARE = 17, 0.2
CATEGORIES = ["books", "garden", "kitchen", "music", "office", "sports", "toys"]
START = dt.date(2024, 1, 1)


def tables(seed: int = SEED) -> dict[str, pl.DataFrame]:
    """Products, their prices (each valid from a day until before another), and sales, of which one product has many."""
    random = np.random.default_rng(seed)
    product = np.arange(PRODUCTS, dtype=np.int32)
    products = pl.DataFrame(
        {"product_id": product, "category": np.array(CATEGORIES)[random.integers(0, len(CATEGORIES), PRODUCTS)]}
    )
    step = DAYS // PRICES_EACH
    since = np.tile(np.arange(PRICES_EACH, dtype=np.int32) * step, PRODUCTS)
    base = np.repeat(random.integers(2, 200, PRODUCTS), PRICES_EACH)
    prices = pl.DataFrame(
        {
            "product_id": np.repeat(product, PRICES_EACH),
            "valid_from": _days(since),
            "valid_until": _days(since + step),
            "price_cents": (base * 50 + 10 * random.integers(0, 9, since.size)).astype(np.int32),
        }
    )
    sold = random.integers(0, PRODUCTS, SALES, dtype=np.int32)
    sold[random.random(SALES) < HOT_SHARE] = HOT_PRODUCT
    sales = pl.DataFrame(
        {
            "day": _days(np.sort(random.integers(0, DAYS, SALES, dtype=np.int32))),
            "product_id": sold,
            "quantity": random.integers(1, 6, SALES, dtype=np.int32),
        }
    )
    return {"products": products, "prices": prices, "sales": sales}


def _days(after_start: np.ndarray) -> pl.Series:
    return pl.Series(after_start + (START - dt.date(1970, 1, 1)).days, dtype=pl.Int32).cast(pl.Date)


def main() -> int:
    """Write one Parquet file a table."""
    folder = Path(__file__).parent / "tables"
    folder.mkdir(exist_ok=True)
    for name, frame in tables().items():
        path = folder / f"{name}.parquet"
        frame.write_parquet(path, compression="zstd", compression_level=19)
        sys.stdout.write(f"{name}: {frame.height:,} rows, {path.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
