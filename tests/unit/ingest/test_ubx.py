import pytest

from pipelines.errors import RecordingError
from pipelines.ingest.ubx import NAV_PVT, checksum, messages, parse_nav_pvt

# First NAV-PVT of the Modena samples: 2022-10-19, 09:53:31 UTC less 69 microseconds.
PVT = bytes.fromhex(
    "b56201075c00c8bb9211e6070a1309351f371c000000d1f2feff0301ea14a9b783065cd29d1ac41e01001f6b000067070000070d0000"
    "f9ffffff04000000050000000800000000000000dc00000080a81201820000005c414f21000000000000000070a0"
)


def test_a_navigation_epoch_tells_utc_place_and_speed():
    ((identity, payload),) = messages(PVT)

    pvt = parse_nav_pvt(payload)

    assert identity == NAV_PVT
    assert (pvt.itow_ms, pvt.utc_ns, pvt.tacc_ns) == (294829000, 1666173210999931089, 28)
    assert (pvt.lat_1e7, pvt.lon_1e7, pvt.speed_mm_s, pvt.fix_type, pvt.num_sv) == (446550620, 109295529, 8, 3, 20)
    assert pvt.is_time_known


@pytest.mark.parametrize("flags", [0, 0b011, 0b101, 0b110])
def test_a_time_that_the_receiver_does_not_vouch_for_is_not_known(flags):
    ((_, payload),) = messages(PVT)

    assert not parse_nav_pvt(payload[:11] + bytes([flags]) + payload[12:]).is_time_known


def test_messages_may_follow_each_other():
    ack = bytes.fromhex("b56205010200068a98c1")

    assert [identity for identity, _ in messages(ack + PVT + ack)] == [(5, 1), NAV_PVT, (5, 1)]


@pytest.mark.parametrize("at", [2, 6, 50, 97, 98, 99])
def test_every_altered_byte_is_noticed(at):
    broken = PVT[:at] + bytes([PVT[at] ^ 1]) + PVT[at + 1 :]

    with pytest.raises(RecordingError, match="checksum"):
        list(messages(broken))


@pytest.mark.parametrize("data", [PVT[:-1], PVT[:5], b"$GPGGA,1", PVT[1:]])
def test_what_is_cut_or_no_message_is_refused(data):
    with pytest.raises(RecordingError, match="UBX message"):
        list(messages(data))


@pytest.mark.parametrize("payload", [bytes(91), bytes(92)])
def test_a_payload_too_short_or_with_an_impossible_date_is_refused(payload):
    with pytest.raises(RecordingError, match="NAV-PVT"):
        parse_nav_pvt(payload)


def test_a_leap_second_is_the_first_instant_of_the_next_minute():
    ((_, payload),) = messages(PVT)

    leap = parse_nav_pvt(payload[:10] + bytes([60]) + payload[11:16] + bytes(4) + payload[20:])

    assert leap.utc_ns == 1666173240 * 10**9


def test_the_checksum_depends_on_the_order_of_bytes():
    assert checksum(b"\x01\x02") != checksum(b"\x02\x01")
