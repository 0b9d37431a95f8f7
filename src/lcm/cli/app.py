"""The commands and their options."""

import contextlib
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from lcm.cli import access
from lcm.cli.process import leave_quietly_on_signals, run_until_signalled
from lcm.cli.simulator_child import SimulatorChild
from lcm.core.telemetry import configure_logging

app = typer.Typer(
    name="lcm",
    help="Lablet Cloud Manager: fleets of Cisco Modeling Labs workers on EC2.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(access.tokens, name="token")
app.add_typer(access.secrets, name="secrets")

Seed = Annotated[int, typer.Option(help="Decides everything random in the simulated world.")]
Speed = Annotated[float, typer.Option(help="Divides the simulated world's delays.", min=0.01)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the ready line as one JSON object.")]
LogLevel = Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR, on standard error.")]
LogJson = Annotated[bool, typer.Option(help="Log JSON lines instead of text.")]

SHOWN_WORKERS = 10
"""Named on the screen, of the workers of a simulation."""


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Port of the control plane and dashboard; 0: any.")] = 8080,
    worker_controller_port: Annotated[
        int | None,
        typer.Option(help="Port of the worker controller; 0: any. Default: 8083, or 0 with --port 0."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where records and keys are kept. Default: temporary, or lcm-data with --no-simulator."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Simulated workers to begin with.", min=0, max=200)] = 5,
    seed: Seed = 0,
    speed: Speed = 1.0,
    simulator: Annotated[bool, typer.Option(help="Simulate AWS and CML, or use the real ones.")] = True,
    aws_endpoint: Annotated[
        str | None, typer.Option(help="Use the AWS behind this URL, for example that of 'lcm simulate'.")
    ] = None,
    templates: Annotated[Path, typer.Option(help="Worker templates to seed.")] = Path(
        "config/worker_templates.yaml"
    ),
    regions: Annotated[Path, typer.Option(help="Regions, when AWS is not simulated.")] = Path(
        "config/regions.yaml"
    ),
    as_json: AsJson = False,
    log_level: LogLevel = "WARNING",
    log_json: LogJson = False,
) -> None:
    """Run everything on this machine: control plane, worker controller, dashboard, simulated cloud."""
    configure_logging("json" if log_json else "human", log_level)
    with contextlib.ExitStack() as stack:
        # The simulator takes seconds to start; so do the imports below. Let them do so together.
        child = None
        if simulator and aws_endpoint is None:
            child = stack.enter_context(SimulatorChild(seed=seed, speed=speed))

        from lcm.cli.up import Ready, StartFailed, UpOptions, up
        from lcm.control_plane.store.port import StoreUnavailable
        from lcm.core.configuration import ConfigurationError
        from lcm.web.server import AddressInUse

        def announce(ready: Ready) -> None:
            if as_json:
                print(msgspec.json.encode(ready).decode(), flush=True)
                return
            console = Console()
            console.print(f"[bold green]LCM is ready.[/] Dashboard: [bold]{ready.url}[/]", soft_wrap=True)
            console.print("Ctrl-C stops everything.", style="dim")

        if worker_controller_port is None:
            worker_controller_port = 0 if port == 0 else 8083
        options = UpOptions(
            port=port,
            worker_controller_port=worker_controller_port,
            data_dir=data_dir,
            workers=workers,
            seed=seed,
            aws_endpoint=aws_endpoint,
            templates=templates,
            regions=regions,
        )
        try:
            run_until_signalled(up(options, child, announce))
        except* (StartFailed, AddressInUse, StoreUnavailable, ConfigurationError) as failures:
            _fail(failures)


@app.command()
def simulate(
    workers: Annotated[
        int, typer.Option(help="CML servers that are up from the beginning.", min=0, max=5000)
    ] = 0,
    port: Annotated[int, typer.Option(help="Port of the AWS endpoint; 0: any.")] = 0,
    cml_port: Annotated[int, typer.Option(help="HTTPS port of every CML server; 0: any.")] = 0,
    cml_version: Annotated[
        str | None, typer.Option(help="Release that every CML server plays. Default: that of its image.")
    ] = None,
    people: Annotated[bool, typer.Option(help="Let simulated people use the CML servers.")] = True,
    license_pool: Annotated[
        int, typer.Option(help="How many servers the license token registers at a time.", min=0)
    ] = 10_000,
    seed: Seed = 0,
    speed: Speed = 1.0,
    as_json: AsJson = False,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the simulated world alone: AWS on its real wire protocol, a CML server per instance.

    Use it with `lcm up --aws-endpoint URL`; it keeps its instances when LCM restarts. The ready line
    (--json) tells the address and login of every worker, the control endpoint, and a license token.
    """
    from lcm.simulator.main import Manner, SimulationError, SimulationInfo, SimulationSettings, run

    def announce(info: SimulationInfo) -> None:
        if as_json:
            print(msgspec.json.encode(info).decode(), flush=True)
            return
        console = Console()
        console.print(f"[bold green]The simulated cloud is ready[/] at [bold]{info.aws_endpoint}[/]")
        for worker in info.workers[:SHOWN_WORKERS]:
            console.print(f"  {worker.url}  {worker.instance_id}", highlight=False)
        if len(info.workers) > SHOWN_WORKERS:
            console.print(f"  … and {len(info.workers) - SHOWN_WORKERS} more; --json names them all")
        console.print(f"CML login: {info.cml_username} / {info.cml_password}", highlight=False)
        console.print(f"License token: {info.license_token}", highlight=False, soft_wrap=True)
        console.print(f"Control: {info.control_url}", highlight=False)
        console.print(f"Use it: lcm up --aws-endpoint {info.aws_endpoint}", style="dim")
        console.print("Ctrl-C ends it.", style="dim")

    try:
        settings = SimulationSettings(
            seed=seed,
            port=port,
            cml_port=cml_port,
            speed=speed,
            workers=workers,
            manner=Manner(version=cml_version, people=people),
            license_pool=license_pool,
        )
    except ValueError as mistake:
        raise typer.BadParameter(str(mistake)) from None
    try:
        run_until_signalled(run(settings, announce), until_stdin_closes=until_stdin_closes)
    except* (SimulationError, OSError) as failures:
        _fail(failures)


@app.command(name="version")
def show_version() -> None:
    """Print the version."""
    print(version("lablet-cloud-manager"))


def _fail(failures: BaseExceptionGroup[BaseException]) -> None:
    """Say what is wrong, without a stack trace, and end with an error."""
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    Console(stderr=True).print(f"[bold red]lcm:[/] {error}", highlight=False, soft_wrap=True)
    sys.exit(1)


def main() -> None:
    leave_quietly_on_signals()
    app()
