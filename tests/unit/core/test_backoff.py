from lcm.core.backoff import Backoff


def test_retries_wait_1_2_4_8_16_32_60_60_seconds() -> None:
    assert [Backoff().delay_seconds(n) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_thousand_failures_do_not_overflow() -> None:
    assert Backoff().delay_seconds(1_000) == 60
