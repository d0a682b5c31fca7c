"""Airflow reads its home once, when it is first imported: give it one that no other Airflow on this machine uses."""

import os
import tempfile

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="trackside-airflow-"))
