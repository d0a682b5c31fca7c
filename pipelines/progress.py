"""How work that takes a while tells what it is at; what is done with that is up to whoever waits."""

from collections.abc import Callable

OnProgress = Callable[[str, str], None]
"""Told the stage of the work and what of it is about to be done, a sensor for example."""


def unheard(stage: str, thing: str) -> None:
    """Progress that nobody waits for."""
