"""Random streams, one for each thing that can vary, and the compiler for loops that numpy cannot express."""

import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def stream(*path: int | str) -> np.random.Generator:
    """Return the generator that belongs to `path`, for example `(seed, vehicle, day, "odo", "jitter")`.

    Streams of different paths are independent, so that drawing more from one (a higher rate, another vehicle, another
    day, a fault) never changes what another one gives.
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


def compiled(function: F) -> F:
    """Compile with numba, keep the machine code on disk, and keep the signature for the type checker."""
    machine_code: F = numba.njit(cache=True)(function)
    return machine_code
