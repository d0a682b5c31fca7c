"""The compiler for loops that numpy cannot express."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with numba, keep the machine code on disk, and keep the signature for the type checker."""
    machine_code: F = numba.njit(cache=True)(function)
    return machine_code
