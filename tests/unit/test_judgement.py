import pytest

from pipelines import judgement, publishing, staging, storage
from pipelines.channels import METROPT3_CHANNELS
from pipelines.errors import DataQualityError
from pipelines.ingest import landing

pytestmark = pytest.mark.usefixtures("lake")


@pytest.fixture
def stage(tmp_path):
    """Stage days of a compressor, each given as its oil temperature."""

    def make(*oil_c):
        names = [channel.name for channel in METROPT3_CHANNELS]
        lines = [",".join(["", "timestamp", *names])]
        for day, temperature_c in enumerate(oil_c, start=1):
            values = {"Oil_temperature": temperature_c}
            row = [str(values.get(name, 1.0)) for name in names]
            stamps = [f"2020-02-{day:02d} 00:{i // 6:02d}:{i % 6}0" for i in range(40)]
            lines += [",".join([str(i), stamp, *row]) for i, stamp in enumerate(stamps)]
        (tmp_path / "apu.csv").write_text("\n".join(lines) + "\n")
        return staging.stage([landing.land_file(str(tmp_path / "apu.csv"), source="metropt3", vehicle="metro-apu")])

    return make


@pytest.fixture
def spoil():
    """Put a reading that no screening would leave there into the staged rows of a day."""

    def change(staged, day):
        (part,) = [p for p in parts_of(staged) if p["day"].endswith(day)]
        frame = staging.load_part(staged, part)
        location = storage.join(staged, f"{part['name']}.parquet")
        storage.write_parquet(location, frame.with_columns(Oil_temperature=frame["Oil_temperature"] * 0 + 200.0))

    return change


def report_of(staged):
    return storage.read_json(storage.join(staged, staging.REPORT))


def parts_of(staged):
    return [part for recording in report_of(staged)["recordings"] for part in recording["parts"]]


def verdict_of(staged):
    return storage.read_json(storage.join(staged, staging.VERDICT))


def quarantine_reasons(staged):
    (recording,) = report_of(staged)["recordings"]
    at = landing.quarantine_of(recording["landed"], recording["digest"])
    return storage.read_json(storage.join(at, "report.json"))["reasons"]


def test_good_days_pass_together_and_have_a_readable_report(stage):
    staged = judgement.judge(stage(60, 61))

    docs = [storage.name_of(page) for page in storage.list_objects(staging.docs_of(staged)) if "/sync/" not in page]
    suites = ["metropt3.html", "metropt3_clocks.html", "metropt3_sensors.html"]
    assert verdict_of(staged)["passed"] == ["metro-apu_2020-02-01_apu", "metro-apu_2020-02-02_apu"]
    assert verdict_of(staged)["failed"] == {}
    assert docs == ["index.html", *suites, "sync.html"]
    assert b'href="sync.html"' in storage.read_bytes(f"{staging.docs_of(staged)}/index.html")
    assert b"simulated" not in storage.read_bytes(f"{staging.docs_of(staged)}/index.html")


def test_the_report_of_simulated_data_says_so(fleet):
    landed = landing.land_bundles(str(fleet / "bundles" / "sim001" / "2026-01-05"))

    staged = judgement.judge(staging.stage(landed))

    assert b"(simulated)" in storage.read_bytes(f"{staging.docs_of(staged)}/index.html")


def test_one_bad_day_does_not_hold_back_the_others(stage, spoil):
    staged = stage(60, 61, 62)
    spoil(staged, "02-02")

    published = publishing.publish(judgement.judge(staged))

    assert verdict_of(staged)["passed"] == ["metro-apu_2020-02-01_apu", "metro-apu_2020-02-03_apu"]
    assert list(published["failed"]) == ["metro-apu_2020-02-02_apu"]
    assert "Oil_temperature" in published["failed"]["metro-apu_2020-02-02_apu"]
    assert storage.read_table(published["table"])["day"].unique().sort().to_list() == ["2020-02-01", "2020-02-03"]
    assert len(quarantine_reasons(staged)) == 1


def test_a_recording_that_fails_whole_is_quarantined_with_its_reason_and_no_longer_pending(stage, spoil):
    staged = stage(60)
    spoil(staged, "02-01")

    with pytest.raises(DataQualityError, match=r"metropt3 metro-apu_2020-02-01_apu: .*") as raised:
        judgement.judge(staged)

    message = str(raised.value)
    assert "Oil_temperature" in message
    assert "200" in message
    assert f"full report: {staging.docs_of(staged)}/index.html" in message
    assert quarantine_reasons(staged)[0] in message
    (recording,) = report_of(staged)["recordings"]
    index = storage.read_bytes(f"{staging.docs_of(staged)}/index.html").decode()
    assert landing.quarantine_of(recording["landed"], recording["digest"]) in index
    assert landing.outcomes("metropt3")[0]["outcome"] == "quarantined"
    assert landing.pending("") == []
    assert not raised.value.retryable


def test_days_that_are_wrong_only_together_are_all_refused(stage):
    staged = stage(60, 61)
    first, second = parts_of(staged)
    storage.write_parquet(f"{staged}/{second['name']}.parquet", staging.load_part(staged, first))

    with pytest.raises(DataQualityError, match=r"metropt3 as a whole: .*"):
        judgement.judge(staged)

    assert verdict_of(staged)["passed"] == []
    assert landing.outcomes("metropt3")[0]["outcome"] == "quarantined"


def test_a_sensor_that_lost_too_many_rows_fails_its_recording(stage):
    staged = stage(60)
    report = report_of(staged)
    report["recordings"][0]["parts"][0]["sensors"][0]["rejected_share"] = 0.3
    storage.write_json(storage.join(staged, staging.REPORT), report)

    with pytest.raises(DataQualityError, match="rejected_share"):
        judgement.judge(staged)


def test_a_repaired_recording_passes_after_it_failed(stage, spoil):
    staged = stage(60)
    spoil(staged, "02-01")
    with pytest.raises(DataQualityError):
        judgement.judge(staged)

    assert verdict_of(judgement.judge(stage(61)))["passed"] == ["metro-apu_2020-02-01_apu"]
