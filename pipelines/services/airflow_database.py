"""Bring Airflow's database to the installed version; does nothing when that was done before."""

import os
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path

from pipelines.services.environment import executables


def migrate(folder: Path) -> None:
    """Create or upgrade the database in the folder, and note for which version that was done."""
    database, stamp = folder / "airflow.db", folder / "migrated"
    installed = version("apache-airflow-core")
    if database.exists() and stamp.exists() and stamp.read_text() == installed:
        return
    subprocess.run([executables() / "airflow", "db", "migrate"], check=True)
    with sqlite3.connect(database) as connection:
        # Readers and the one writer no longer wait for each other; the database remembers the setting.
        connection.execute("PRAGMA journal_mode=WAL")
    stamp.write_text(installed)


if __name__ == "__main__":
    migrate(Path(os.environ["AIRFLOW_HOME"]))
