"""Wall-clock text in the notations of many hands, brought to `YYYY-MM-DD HH:MM:SS` without guessing.

`03/04/2020` is a day in March or in April. Which one it is, only other stamps of the same file can tell: one whose
first number is above twelve shows that the day comes first. Where nothing tells, the stamp is not read.
"""

from dataclasses import dataclass

import polars as pl

_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} (?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?$"
_YEAR_FIRST = r"^(?<year>\d{4})[-/.](?<a>\d{1,2})[-/.](?<b>\d{1,2})[ T](?<clock>\d{1,2}:\d\d(?::\d\d(?:\.\d{1,9})?)?)$"
_YEAR_LAST = r"^(?<a>\d{1,2})[-/.](?<b>\d{1,2})[-/.](?<year>\d{4})[ T](?<clock>\d{1,2}:\d\d(?::\d\d(?:\.\d{1,9})?)?)$"


@dataclass(frozen=True, kw_only=True, slots=True)
class DayOrder:
    """What the stamps seen so far say about where the day stands."""

    num_day_first: int = 0
    """Stamps such as `31/12/2020`."""

    num_month_first: int = 0
    """Stamps such as `12/31/2020`."""

    num_ambiguous: int = 0
    """Stamps such as `03/04/2020`."""

    num_plain: int = 0
    """Stamps that begin with the year, or whose day and month are equal."""

    def __add__(self, other: "DayOrder") -> "DayOrder":
        """Evidence of both."""
        return DayOrder(
            num_day_first=self.num_day_first + other.num_day_first,
            num_month_first=self.num_month_first + other.num_month_first,
            num_ambiguous=self.num_ambiguous + other.num_ambiguous,
            num_plain=self.num_plain + other.num_plain,
        )

    @property
    def is_told(self) -> bool:
        """Whether all evidence points to one order."""
        return (self.num_day_first > 0) != (self.num_month_first > 0)


def day_order(text: pl.Series) -> DayOrder:
    """Count what the stamps say about where the day stands.

    Example:
        >>> day_order(pl.Series(["03/04/2020 10:00:00", "31/12/2020 10:00:00"])).is_told
        True
    """
    parts = _parts(text)
    return DayOrder(
        num_day_first=parts.filter((pl.col("a") > 12) & ~pl.col("is_year_first")).height,
        num_month_first=parts.filter((pl.col("b") > 12) & ~pl.col("is_year_first")).height,
        num_ambiguous=parts.filter(pl.col("is_open")).height,
        num_plain=parts.filter(pl.col("is_year_first") | (pl.col("a") == pl.col("b"))).height,
    )


def to_iso(text: pl.Series, order: DayOrder) -> pl.Series:
    """Bring stamps to `YYYY-MM-DD HH:MM:SS`, fractions kept; null where one cannot be read or stays ambiguous.

    Example:
        >>> texts = pl.Series(["3/4/2020 9:05", "2020-04-03 09:05:10.5"])
        >>> to_iso(texts, DayOrder(num_day_first=1)).to_list()
        ['2020-04-03 09:05:00', '2020-04-03 09:05:10.5']
    """
    is_plain = is_iso(text)
    if is_plain.all():
        return text
    day_first = pl.lit(order.num_day_first > 0)
    a, b = pl.col("a").cast(pl.String).str.zfill(2), pl.col("b").cast(pl.String).str.zfill(2)
    is_day_first = (pl.col("a") > 12) | (pl.col("is_open") & day_first)
    date = (
        pl.when(pl.col("is_open") & ~pl.lit(order.is_told))
        .then(None)
        .when(~pl.col("is_year_first") & is_day_first)
        .then(pl.concat_str("year", pl.lit("-"), b, pl.lit("-"), a))
        .otherwise(pl.concat_str("year", pl.lit("-"), a, pl.lit("-"), b))
    )
    clock = pl.col("clock").str.zfill(pl.col("clock").str.len_chars() + (pl.col("clock").str.find(":") == 1))
    seconds = pl.when(clock.str.count_matches(":") == 1).then(pl.lit(":00")).otherwise(pl.lit(""))
    iso = _parts(text).select(pl.concat_str(date, pl.lit(" "), clock, seconds).alias(text.name)).to_series()
    return iso.set(~is_iso(iso), None).zip_with(~is_plain, text)


def is_iso(text: pl.Series) -> pl.Series:
    """Where a stamp is an existing instant in `YYYY-MM-DD HH:MM:SS`, with or without a fraction."""
    # Parsing whole stamps costs five times as much: only dates repeat often enough for its cache.
    is_date = text.str.head(10).str.to_date("%Y-%m-%d", strict=False).is_not_null()
    return is_date & text.str.contains(_ISO).fill_null(value=False)


def is_ambiguous(text: pl.Series) -> pl.Series:
    """Where day and month of a stamp could be exchanged and give another date."""
    return _parts(text)["is_open"]


def _parts(text: pl.Series) -> pl.DataFrame:
    """Numbers of each stamp; null where it has none of the known forms."""
    first = text.str.extract_groups(_YEAR_FIRST).struct.unnest()
    last = text.str.extract_groups(_YEAR_LAST).struct.unnest()
    parts = pl.DataFrame({name: first[name].fill_null(last[name]) for name in ("year", "a", "b", "clock")})
    a, b = pl.col("a"), pl.col("b")
    return parts.with_columns(
        a.cast(pl.Int64), b.cast(pl.Int64), is_year_first=first["year"].is_not_null()
    ).with_columns(is_open=(~pl.col("is_year_first") & (a <= 12) & (b <= 12) & (a != b)).fill_null(value=False))
