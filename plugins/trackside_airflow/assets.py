"""What one DAG tells another: the data or the model that a task has just renewed."""

from airflow.sdk import Asset

ALIGNED_DATA = Asset("aligned_data")
"""Recordings of a vehicle day were published to the aligned table of their source."""

MODEL_CANDIDATE = Asset("model_candidate")
"""A trained model was registered with its evidence; nobody has decided about it yet."""

MODEL_CHAMPION = Asset("model_champion")
"""The alias `champion` moved to another version."""
