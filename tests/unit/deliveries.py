"""What tests of staging and publishing share."""

from pipelines import staging, storage
from pipelines.ingest import landing


def land_day(fleet, day):
    """Land the only trip of a day."""
    return landing.land_bundles(str(fleet / "bundles" / "sim001" / day))[0]


def report_of(staged):
    return storage.read_json(storage.join(staged, staging.REPORT))


def parts_of(staged):
    return [part for recording in report_of(staged)["recordings"] for part in recording["parts"]]


def quarantine_report(location):
    at = landing.quarantine_of(location, storage.digest_of(location))
    return storage.read_json(storage.join(at, "report.json"))
