"""`mlflow server` in one process instead of two.

The command of MLflow starts the web server as a child and waits for it, while it keeps 240 MB and the seconds that
its imports took. Here the same arguments go through the same command, and the process itself becomes the web server.
"""

import os
from typing import Any


def main() -> None:
    """Run the command with the arguments of this process."""
    import mlflow.server
    from mlflow.cli import cli

    mlflow.server._exec_cmd = _serve
    cli()


def _serve(command: list[str], *, extra_env: dict[str, str], **_: Any) -> None:
    """Run `python -m uvicorn …` here, where MLflow would start it as a child."""
    import uvicorn

    os.environ.update(extra_env)
    uvicorn.main(command[command.index("uvicorn") + 1 :])


if __name__ == "__main__":
    main()
