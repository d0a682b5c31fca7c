import polars as pl
import pytest

from pipelines.ingest.dates import DayOrder, day_order, is_iso, to_iso

DAY_FIRST = DayOrder(num_day_first=1)
MONTH_FIRST = DayOrder(num_month_first=1)
MIXED = DAY_FIRST + MONTH_FIRST


@pytest.mark.parametrize(
    ("text", "order", "iso"),
    [
        ("2020-02-01 00:00:10", DayOrder(), "2020-02-01 00:00:10"),
        ("2020-02-01 00:00:10.250", DayOrder(), "2020-02-01 00:00:10.250"),
        ("2020-02-01T00:00:10", DayOrder(), "2020-02-01 00:00:10"),
        ("2020/2/1 7:05", DayOrder(), "2020-02-01 07:05:00"),
        ("31.12.2020 23:59:59", DayOrder(), "2020-12-31 23:59:59"),
        ("12/31/2020 23:59:59", DayOrder(), "2020-12-31 23:59:59"),
        ("05/05/2020 00:00:00", DayOrder(), "2020-05-05 00:00:00"),
        ("03/04/2020 00:00:00", DAY_FIRST, "2020-04-03 00:00:00"),
        ("03/04/2020 00:00:00", MONTH_FIRST, "2020-03-04 00:00:00"),
        ("03/04/2020 00:00:00", DayOrder(), None),
        ("03/04/2020 00:00:00", MIXED, None),
        ("31/12/2020 00:00:00", MIXED, "2020-12-31 00:00:00"),
        ("2020-02-30 00:00:00", DayOrder(), None),
        ("2020-02-01 24:00:00", DayOrder(), None),
        ("2020-02-01 00:00:10+01:00", DayOrder(), None),
        ("yesterday", DAY_FIRST, None),
        (None, DAY_FIRST, None),
    ],
)
def test_a_stamp_is_brought_to_iso_or_not_read(text, order, iso):
    # The other stamp makes sure that the column is not taken for plain ISO text as a whole.
    assert to_iso(pl.Series([text, "x"], dtype=pl.String), order).to_list() == [iso, None]


def test_evidence_of_both_orders_tells_nothing():
    assert day_order(pl.Series(["31/12/2020 00:00:00", "03/04/2020 00:00:00"])).is_told
    assert not day_order(pl.Series(["31/12/2020 00:00:00", "12/31/2020 00:00:00"])).is_told
    assert not day_order(pl.Series(["03/04/2020 00:00:00"])).is_told


def test_only_existing_instants_in_the_one_notation_are_iso():
    texts = ["2020-02-29 23:59:59.999", "2021-02-29 00:00:00", "2020-02-29 23:59", "2020-2-9 00:00:00", None]

    assert is_iso(pl.Series(texts)).to_list() == [True, False, False, False, False]
