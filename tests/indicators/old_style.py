"""A script as those of the old contract are: echoes on stderr, `component`, build information, no checks."""

import json
import os
import statistics
import sys
import time

_ARGS_DTYPE = os.getenv("MATMUL_DTYPE", "float64")
print(f"DTYPE set to {_ARGS_DTYPE}", file=sys.stderr)
_ARGS_DEVICE = os.getenv("MATMUL_DEVICE", "cpu")
print(f"DEVICE set to {_ARGS_DEVICE}", file=sys.stderr)
_ARGS_REPS = int(os.getenv("MATMUL_REPS", "3"))
print(f"REPS set to {_ARGS_REPS}", file=sys.stderr)
_ARGS_MATRIX_SIZE = int(os.getenv("MATMUL_MATRIX_SIZE", "16"))
print(f"MATRIX size set to {_ARGS_MATRIX_SIZE}", file=sys.stderr)


def bench(n):
    ones = [[1.0] * n for _ in range(n)]
    times = []
    for _ in range(_ARGS_REPS):
        start = time.monotonic()
        [[sum(x * y for x, y in zip(row, column, strict=True)) for column in ones] for row in ones]
        times.append(time.monotonic() - start)
    elapsed = 1000 * statistics.median(times)
    return (n**3 + (n - 1) * n**2) / elapsed / 10**6, elapsed


def main():
    rate, elapsed = bench(_ARGS_MATRIX_SIZE)
    result = {
        "component": "python",
        "name": "PiMatmul",
        "@parameters": {
            "dtype": _ARGS_DTYPE,
            "device": _ARGS_DEVICE,
            "reps": _ARGS_REPS,
            "matrix_size": _ARGS_MATRIX_SIZE,
        },
        "@result": {"rate": rate, "elapsed": elapsed},
        "python_aicoe_buildinfo": None,
        "python_upstream_buildinfo": {"is_cuda_build": False},
    }
    json.dump(result, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
