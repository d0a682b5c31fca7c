"""The `ray` command without Ray Serve, whose import takes longer than everything else that `ray start` does.

The command leaves out a part that cannot be imported; Serve is not used here.
"""

import sys
from typing import Any


def main() -> None:
    """Run the command with the arguments of this process."""
    absent: dict[str, Any] = {"ray.serve": None}
    sys.modules.update(absent)
    from ray.scripts.scripts import main as ray

    ray()


if __name__ == "__main__":
    main()
