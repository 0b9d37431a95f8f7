"""How long the ways of a click are, in functions: what is to be read by a person who follows one.

`tests/support/ways.py` says what counts. HTTP, SQLite and EC2's wire are not part of these;
`benchmarks/ways.py` counts them too.
"""

from lcm.domain.worker import Action
from support.fleet import Fleet
from support.ways import Tracer, Way

MOST_OF_A_LAUNCH = 58
MOST_OF_A_STOP = 68


async def test_the_way_from_a_click_to_ec2_does_not_grow() -> None:
    async with Fleet().running() as fleet:
        await fleet.running_worker("before")  # whatever is made once is there
        with Tracer() as tracer:
            with tracer.recording(Way(":Launcher._run_instances")) as launch:
                worker = await fleet.running_worker("traced")
            await fleet.clock.sleep(60)
            with tracer.recording(Way(":Election.check")) as stop:
                await fleet.ask(worker, Action.STOP)
                await fleet.clock.sleep(5)
    assert fleet.effects() == ["launch_instance", "launch_instance", "stop_instance"]
    for way, most in ((launch, MOST_OF_A_LAUNCH), (stop, MOST_OF_A_STOP)):
        functions = way.functions()
        assert len(functions) <= most, "\n".join(functions)
