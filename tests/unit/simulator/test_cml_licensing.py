"""Licensing: accepted at once, decided later."""

import pytest

from lcm.simulator.cml.licensing import BASE_FEATURE, NODES_FEATURE, LicensePool, Licensing
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.pace import Pace

TOKEN = "a-good-token"
LATER = 60.0


@pytest.fixture
def pool() -> LicensePool:
    return LicensePool(TOKEN, size=1)


def agent(pool: LicensePool, name: str = "127.64.0.4") -> Licensing:
    return Licensing(pool=pool, pace=Pace(seed=1, speed=1.0), name=name)


def statuses(licensing: Licensing, now: float) -> tuple[str, str]:
    body = licensing.status(now)
    return body["registration"]["status"], body["authorization"]["status"]


def test_a_good_token_registers_first_and_authorizes_then(pool: LicensePool) -> None:
    licensing = agent(pool)
    seen = [statuses(licensing, 0.0)]
    licensing.register(TOKEN, reregister=False, now=0.0)
    for tenth in range(100):
        if (now := statuses(licensing, tenth / 10)) != seen[-1]:
            seen.append(now)
    assert seen == [
        ("NOT_REGISTERED", "INIT"),
        ("IN_PROGRESS", "INIT"),
        ("COMPLETED", "INIT"),
        ("COMPLETED", "IN_COMPLIANCE"),
    ]
    assert licensing.is_licensed(LATER)
    assert list(pool.holders.values()) == ["127.64.0.4"]


def test_the_quirks_of_a_registration_that_worked_are_kept(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.register(TOKEN, reregister=False, now=0.0)
    registration = licensing.status(LATER)["registration"]
    assert registration["register_time"]["failure"] == "OK"
    assert registration["register_time"]["succeeded"] is None
    assert registration["register_time"]["success"] == "SUCCESS"
    assert registration["renew_time"]["success"] == "FAILED"
    assert registration["register_time"]["attempted"] == "1970-01-01 00:00:00"


def test_an_unknown_token_is_accepted_and_fails_later(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.register("not-the-token", reregister=False, now=0.0)
    assert statuses(licensing, 0.0) == ("IN_PROGRESS", "INIT")
    assert statuses(licensing, LATER) == ("FAILED", "EVAL")
    attempt = licensing.status(LATER)["registration"]["register_time"]
    assert attempt["success"] == "FAILED"
    assert attempt["failure"].endswith("'not-the-token' is not valid")


@pytest.mark.parametrize("token", [None, "", "with blanks in it", "x" * 257, 7])
def test_a_malformed_token_is_refused_at_once(pool: LicensePool, token: object) -> None:
    with pytest.raises(Refused) as refusal:
        agent(pool).register(token, reregister=False, now=0.0)
    assert refusal.value.code == 400


def test_a_used_up_token_registers_no_server_until_a_license_is_released(pool: LicensePool) -> None:
    first, second = agent(pool, "first"), agent(pool, "second")
    first.register(TOKEN, reregister=False, now=0.0)
    assert first.is_licensed(LATER)
    second.register(TOKEN, reregister=False, now=LATER)
    assert statuses(second, 2 * LATER) == ("FAILED", "EVAL")
    first.deregister(2 * LATER)
    second.register(TOKEN, reregister=False, now=2 * LATER)
    assert second.is_licensed(3 * LATER)


def test_deregistering_twice_is_refused(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.register(TOKEN, reregister=False, now=0.0)
    assert licensing.deregister(LATER)
    assert statuses(licensing, LATER) == ("NOT_REGISTERED", "INIT")
    assert not pool.holders
    with pytest.raises(Refused) as refusal:
        licensing.deregister(LATER)
    assert refusal.value.code == 400


def test_a_deregistration_does_not_stop_a_registration_under_way(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.register(TOKEN, reregister=False, now=0.0)
    with pytest.raises(Refused) as refusal:
        licensing.deregister(0.0)
    assert refusal.value.code == 400
    assert licensing.is_licensed(LATER)


def test_a_registration_under_way_is_lost_with_the_power_and_a_finished_one_is_not(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.register(TOKEN, reregister=False, now=0.0)
    licensing.lose_power(0.0)
    assert statuses(licensing, LATER) == ("NOT_REGISTERED", "INIT")
    assert not pool.holders
    licensing.register(TOKEN, reregister=False, now=LATER)
    licensing.lose_power(2 * LATER)
    assert licensing.is_licensed(2 * LATER)


def test_a_deregistration_that_gets_lost_leaks_a_license(pool: LicensePool) -> None:
    licensing = agent(pool)
    pool.loses_deregistrations = True
    licensing.register(TOKEN, reregister=False, now=0.0)
    assert not licensing.deregister(LATER)
    assert statuses(licensing, LATER) == ("NOT_REGISTERED", "INIT")
    assert list(pool.holders.values()) == ["127.64.0.4"]


def test_without_a_route_to_cisco_registering_keeps_trying_and_deregistering_leaks_a_license(
    pool: LicensePool,
) -> None:
    licensing = agent(pool)
    pool.is_reachable = False
    licensing.register(TOKEN, reregister=False, now=0.0)
    assert statuses(licensing, LATER) == ("RETRY_IN_PROGRESS", "EVAL")
    pool.is_reachable = True
    assert licensing.is_licensed(3 * LATER)
    pool.is_reachable = False
    assert not licensing.deregister(3 * LATER)
    assert list(pool.holders.values()) == ["127.64.0.4"]


def test_a_registered_server_registers_again_only_on_request(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.register(TOKEN, reregister=False, now=0.0)
    assert licensing.is_licensed(LATER)
    with pytest.raises(Refused) as refusal:
        licensing.register(TOKEN, reregister=False, now=LATER)
    assert refusal.value.code == 409
    licensing.register(TOKEN, reregister=True, now=LATER)
    assert licensing.is_licensed(2 * LATER)


def test_features_stay_within_their_limits(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.set_features({NODES_FEATURE: 20})
    licensing.register(TOKEN, reregister=False, now=0.0)
    used = {feature["id"]: feature["in_use"] for feature in licensing.status(LATER)["features"]}
    assert used == {BASE_FEATURE: 1, NODES_FEATURE: 20}
    with pytest.raises(Refused):
        licensing.set_features({NODES_FEATURE: 501})


def test_the_active_product_cannot_be_chosen_again(pool: LicensePool) -> None:
    licensing = agent(pool)
    licensing.set_product("CML_Education")
    assert licensing.status(0.0)["product_license"] == {"active": "CML_Education", "is_enterprise": False}
    for product in ("CML_Education", "CML_Unheard_Of"):
        with pytest.raises(Refused) as refusal:
            licensing.set_product(product)
        assert refusal.value.code == 400
