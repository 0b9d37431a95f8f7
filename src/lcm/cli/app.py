"""The commands and their options."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lcm.cli import access, acting, bridge, contexts, declaring, quick, reading, support_bundle
from lcm.cli.extras import advice, has_simulator, missing_extra
from lcm.cli.process import collect_rarely, leave_quietly_on_signals
from lcm.cli.terminal import choose_context

if TYPE_CHECKING:
    from lcm.cli.simulator_child import SimulatorChild
    from lcm.cli.up import UpOptions
    from lcm.domain.diagnosis import Finding

app = typer.Typer(
    name="lcm",
    help="Lablet Cloud Manager: fleets of Cisco Modeling Labs workers on EC2.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

COMPLETION = "_LCM_COMPLETE"
"""The variable by which a shell asks for completions."""
KEYS_PANEL = "Keys of a running LCM, on its host"
SERVERS_PANEL = "Run LCM"

VERBS = {
    **reading.COMMANDS,
    **acting.COMMANDS,
    **declaring.COMMANDS,
    **bridge.COMMANDS,
    **contexts.COMMANDS,
}
"""The commands that ask a running LCM."""
for verbs in (reading, acting, declaring, bridge, contexts):
    for verb, command in verbs.COMMANDS.items():
        app.command(verb, rich_help_panel=verbs.PANEL)(command)
app.command("support-bundle", rich_help_panel=reading.PANEL)(support_bundle.support_bundle)
app.add_typer(acting.create, name="create", rich_help_panel=acting.PANEL)
app.add_typer(contexts.context, name="context", rich_help_panel=contexts.PANEL)
app.add_typer(access.tokens, name="token", rich_help_panel=KEYS_PANEL)
app.add_typer(access.secrets, name="secrets", rich_help_panel=KEYS_PANEL)
app.command("link", rich_help_panel=KEYS_PANEL)(access.link)

Seed = Annotated[int, typer.Option(help="Seed of every random choice of the simulation.")]
Speed = Annotated[float, typer.Option(help="Divides the delays of the simulation.", min=0.01)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the ready line as one JSON object.")]
LogLevel = Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR, on standard error.")]
LogJson = Annotated[bool, typer.Option(help="Log JSON lines instead of text.")]

SHOWN_WORKERS = 10
"""How many workers of a simulation are printed."""


@app.command(rich_help_panel=SERVERS_PANEL)
def up(
    port: Annotated[int, typer.Option(help="Port of the control plane and dashboard; 0: any.")] = 8080,
    worker_controller_port: Annotated[
        int | None,
        typer.Option(help="Port of the worker controller; 0: any. Default: 8083, or 0 with --port 0."),
    ] = None,
    resource_scheduler_port: Annotated[
        int | None,
        typer.Option(help="Port of the resource scheduler; 0: any. Default: 8081, or 0 with --port 0."),
    ] = None,
    lablet_controller_port: Annotated[
        int | None,
        typer.Option(help="Port of the lablet controller; 0: any. Default: 8082, or 0 with --port 0."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Directory of records and keys. Default: temporary, or lcm-data with --no-simulator."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Workers of the demo fleet.", min=0, max=200)] = 5,
    demo_sessions: Annotated[
        bool, typer.Option(help="Lablet definitions and sessions for the demo fleet, if it has workers.")
    ] = True,
    seed: Seed = 0,
    speed: Speed = 1.0,
    simulator: Annotated[bool, typer.Option(help="Simulate AWS and CML, or use the real ones.")] = True,
    ha: Annotated[
        bool,
        typer.Option(help="Run several processes on an etcd, to watch failovers; simulated cloud only."),
    ] = False,
    aws_endpoint: Annotated[
        str | None, typer.Option(help="Use the AWS endpoint at this URL, for example that of 'lcm simulate'.")
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="Worker templates to seed. Default: those of 'lcm init', or built in.")
    ] = None,
    regions: Annotated[
        Path | None,
        typer.Option(help="Region config, when AWS is not simulated. Default: that of 'lcm init'."),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option(help="Serve TLS, with a certificate of an authority made in the data directory."),
    ] = False,
    save_context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Keep a context of this name while it runs: 'lcm get workers' then finds it."
        ),
    ] = None,
    as_json: AsJson = False,
    log_level: LogLevel = "WARNING",
    log_json: LogJson = False,
) -> None:
    """Run everything on this host: control plane, controllers, dashboard, simulated cloud."""
    from lcm.cli.simulator_child import SimulatorChild

    is_simulated = simulator and aws_endpoint is None
    if is_simulated and not has_simulator():
        _fail(f"{advice('simulator')}, or use --no-simulator")
    with contextlib.ExitStack() as stack:
        # The simulator takes seconds to start; so do the imports below. Both run in parallel.
        child = None
        if is_simulated:
            child = stack.enter_context(SimulatorChild(seed=seed, speed=speed))

        import msgspec
        from rich.console import Console

        from lcm.cli.contexts import kept_context
        from lcm.cli.processes import StartFailed
        from lcm.cli.running import run_until_signalled
        from lcm.cli.settings import WrongSettings
        from lcm.cli.up import Ready, UpOptions, up
        from lcm.control_plane.store.port import StoreUnavailable
        from lcm.core.configuration import ConfigurationError
        from lcm.core.telemetry import configure_logging
        from lcm.web.server import AddressInUse

        configure_logging("json" if log_json else "human", log_level)

        def announce(ready: Ready) -> None:
            if save_context is not None:
                stack.enter_context(kept_context(save_context, ready.url, ready.token, ready.ca_file))
            if as_json:
                print(msgspec.json.encode(ready).decode(), flush=True)
                return
            console = Console()
            console.print(f"[bold green]LCM is ready.[/] Dashboard: [bold]{ready.url}[/]", soft_wrap=True)
            if ready.ca_file is not None:
                console.print(
                    f"Its certificate is signed by {ready.ca_file}: import that into your browser, and name"
                    " it to other programs (LCM_CA_FILE).",
                    soft_wrap=True,
                )
            console.print("Ctrl-C stops everything.", style="dim")

        if worker_controller_port is None:
            worker_controller_port = 0 if port == 0 else 8083
        if resource_scheduler_port is None:
            resource_scheduler_port = 0 if port == 0 else 8081
        if lablet_controller_port is None:
            lablet_controller_port = 0 if port == 0 else 8082
        options = UpOptions(
            port=port,
            worker_controller_port=worker_controller_port,
            resource_scheduler_port=resource_scheduler_port,
            lablet_controller_port=lablet_controller_port,
            data_dir=data_dir,
            workers=workers,
            demo_sessions=demo_sessions and workers > 0,
            seed=seed,
            aws_endpoint=aws_endpoint,
            templates=templates,
            regions=regions,
            tls=tls,
        )
        expected = (StartFailed, WrongSettings, AddressInUse, StoreUnavailable, ConfigurationError)
        with _errors_in_one_sentence(*expected):
            if ha:
                _up_ha(options, child, as_json)
                return
            run_until_signalled(up(options, child, announce))


def _up_ha(options: "UpOptions", child: "SimulatorChild | None", as_json: bool) -> None:
    import msgspec
    from rich.console import Console

    from lcm.cli.ha import HaReady, up_ha
    from lcm.cli.running import run_until_signalled

    if child is None:
        _fail("--ha works with the simulated cloud only: leave out --no-simulator and --aws-endpoint")
    console = Console(stderr=True) if as_json else Console()

    def announce(ready: HaReady) -> None:
        if as_json:
            print(msgspec.json.encode(ready).decode(), flush=True)
            return
        for name, pid in ready.processes.items():
            console.print(f"  {name:22} pid {pid:<8} port {ready.ports[name]}", highlight=False)
        console.print(f"[bold green]LCM is ready.[/] Dashboard: [bold]{ready.url}[/]", soft_wrap=True)
        console.print("Kill one to watch the failover. Ctrl-C stops everything.", style="dim")

    run_until_signalled(up_ha(options, child, announce, lambda line: console.print(line, style="dim")))


@app.command(rich_help_panel=SERVERS_PANEL)
def simulate(
    workers: Annotated[
        int, typer.Option(help="CML servers that run from the beginning.", min=0, max=5000)
    ] = 0,
    port: Annotated[int, typer.Option(help="Port of the AWS endpoint; 0: any.")] = 0,
    cml_port: Annotated[int, typer.Option(help="HTTPS port of every CML server; 0: any.")] = 0,
    cml_version: Annotated[
        str | None, typer.Option(help="CML release to simulate. Default: that of the image.")
    ] = None,
    people: Annotated[bool, typer.Option(help="Let simulated people use the CML servers.")] = True,
    license_pool: Annotated[
        int, typer.Option(help="How many servers may be registered with the license token at a time.", min=0)
    ] = 10_000,
    seed: Seed = 0,
    speed: Speed = 1.0,
    as_json: AsJson = False,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the simulator alone: AWS on its real wire protocol, a CML server per instance.

    Use it with `lcm up --aws-endpoint URL`; it keeps its instances when LCM restarts. The ready line
    (--json) holds the address and login of every worker, the control endpoint, and a license token.
    """
    import msgspec
    from rich.console import Console

    from lcm.cli.running import run_until_signalled
    from lcm.simulator.main import ServerOptions, SimulationError, SimulationInfo, SimulationSettings, run

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
        console.print("Ctrl-C stops it.", style="dim")

    try:
        settings = SimulationSettings(
            seed=seed,
            port=port,
            cml_port=cml_port,
            speed=speed,
            workers=workers,
            server_options=ServerOptions(version=cml_version, people=people),
            license_pool=license_pool,
        )
    except ValueError as mistake:
        raise typer.BadParameter(str(mistake)) from None
    with _errors_in_one_sentence(SimulationError, OSError):
        run_until_signalled(run(settings, announce), until_stdin_closes=until_stdin_closes)


@dataclass(frozen=True)
class RunOptions:
    """The options of every process command besides its settings."""

    as_json: bool
    log_level: str
    log_json: bool
    until_stdin_closes: bool


CONTROLLERS = {
    "worker-controller": (
        "Run a worker controller: EC2 instances and CML systems. One of several leads, the others stand by."
    ),
    "resource-scheduler": (
        "Run a resource scheduler: it places lablet sessions on workers. One of several leads, the others"
        " stand by."
    ),
    "lablet-controller": (
        "Run a lablet controller: it runs the labs of sessions on workers. One of several leads, the others"
        " stand by."
    ),
}
"""The commands that run a controller, and their help."""

store_commands = typer.Typer(help="Maintain the records.", no_args_is_help=True)
app.add_typer(store_commands, name="store", rich_help_panel=SERVERS_PANEL)

Config = Annotated[
    Path | None,
    typer.Option(envvar="LCM_CONFIG", help="YAML file with settings; the environment and flags override it."),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0: any.")]
UntilStdinCloses = Annotated[bool, typer.Option(hidden=True)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, by the name of its variable; repeatable."),
]


@app.command(name="control-plane", rich_help_panel=SERVERS_PANEL)
def control_plane(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    data_dir: Annotated[Path | None, typer.Option(help="Directory of records and keys.")] = None,
    settings: Set = None,
    as_json: AsJson = False,
    log_level: LogLevel = "INFO",
    log_json: LogJson = False,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Run a control plane: the records, the API, the dashboard."""
    flags = _flags(settings, CONTROL_PLANE_HOST=host, CONTROL_PLANE_PORT=port, LCM_DATA_DIR=data_dir)
    _run_process("control-plane", config, flags, RunOptions(as_json, log_level, log_json, until_stdin_closes))


def _add_controller_command(name: str, summary: str) -> None:
    prefix = name.replace("-", "_").upper()

    @app.command(name=name, help=summary, rich_help_panel=SERVERS_PANEL)
    def run_controller(
        config: Config = None,
        host: Host = None,
        port: Port = None,
        settings: Set = None,
        as_json: AsJson = False,
        log_level: LogLevel = "INFO",
        log_json: LogJson = False,
        until_stdin_closes: UntilStdinCloses = False,
    ) -> None:
        flags = _flags(settings, **{f"{prefix}_HOST": host, f"{prefix}_PORT": port})
        _run_process(name, config, flags, RunOptions(as_json, log_level, log_json, until_stdin_closes))


for _name, _summary in CONTROLLERS.items():
    _add_controller_command(_name, _summary)


@app.command(name="config", rich_help_panel=SERVERS_PANEL)
def show_config(
    process: Annotated[
        str | None, typer.Argument(help="Only this process, for example control-plane.")
    ] = None,
    config: Config = None,
    settings: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the settings in force and where each comes from. Secrets are masked."""
    import msgspec
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lcm.cli.settings import PROCESSES, WrongSettings, load

    if process is not None and process not in PROCESSES:
        _fail(f"there is no process {process!r}; choose one of: {', '.join(PROCESSES)}")
    names = [process] if process is not None else list(PROCESSES)
    try:
        loaded = {name: load(name, PROCESSES[name], config, _flags(settings)) for name in names}
    except WrongSettings as wrong:
        _fail(str(wrong))
    if as_json:
        shown = {name: {s.variable: s for s in found.shown()} for name, found in loaded.items()}
        print(msgspec.json.encode(shown).decode())
        return
    console = Console()
    for name, found in loaded.items():
        table = Table(title=f"lcm {name}", title_justify="left", box=None, pad_edge=False)
        for column in ("variable", "value", "from"):
            table.add_column(column, overflow="fold")
        for setting in found.shown():
            table.add_row(
                setting.variable,
                Text(setting.value),  # not markup: a value may contain brackets
                Text(setting.source),
                style="dim" if setting.source == "default" else None,
            )
        console.print(table, "")


@app.command(name="doctor", rich_help_panel=SERVERS_PANEL)
def show_findings(
    config: Config = None,
    settings: Set = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="ADDRESS", help="Address that AWS sees of this host, if it is behind NAT."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    log_level: LogLevel = "ERROR",
) -> None:
    """Check what would stop a launch: credentials, permissions, images, network, quota, stores, clock.

    Changes nothing. Exit code: 0 if all is ok, 1 if something failed, 6 if something could not be checked.
    """
    import msgspec
    from rich.console import Console

    from lcm.cli.doctor import examine
    from lcm.cli.findings import exit_code, show
    from lcm.cli.running import run_until_signalled
    from lcm.core.telemetry import configure_logging

    configure_logging("human", log_level)
    if source is not None and not _is_address(source):
        raise typer.BadParameter(f"{source!r} is not an IP address", param_hint="--from")
    findings: list[Finding] = []

    async def run() -> None:
        findings.extend(await examine(config, _flags(settings), source))

    run_until_signalled(run())
    if as_json:
        print(msgspec.json.encode(findings).decode())
    else:
        show(findings, Console())
    sys.exit(exit_code(findings))


probes = typer.Typer(help="Compare a server with what LCM assumes of it.", no_args_is_help=True)
app.add_typer(probes, name="probe", rich_help_panel=SERVERS_PANEL)


@probes.command(name="cml")
def probe_cml(
    url: Annotated[
        str, typer.Argument(help="Address of a CML server: https://host, with its port if not 443.")
    ],
    username: Annotated[str, typer.Option(help="An administrator of it.")] = "admin",
    minutes: Annotated[
        float, typer.Option(help="How long the live feed is held; 30 for a full probe.", min=0)
    ] = 1,
    report: Annotated[Path, typer.Option(help="File for the report; an older one is replaced.")] = Path(
        "cml-probe.md"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    log_level: LogLevel = "ERROR",
) -> None:
    """Read a CML server and report which assumptions of LCM about CML hold there.

    Changes nothing on it. The password is asked for, or taken from CML_WORKER_API_PASSWORD. The report
    names no address, user, title or id. Exit code: 0 if all assumptions held, 1 if one did not, 6 if one was
    not seen.
    """
    import msgspec
    from rich.console import Console

    from lcm.cli.findings import exit_code, show
    from lcm.cli.probe import Probed, probe, server_at
    from lcm.cli.running import run_until_signalled
    from lcm.core.telemetry import configure_logging

    configure_logging("human", log_level)
    server = server_at(url)
    if server is None:
        raise typer.BadParameter(
            f"{url!r} is no address of a CML server: write https://host", param_hint="URL"
        )
    if not report.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {report.parent}", param_hint="--report")
    password = os.environ.get("CML_WORKER_API_PASSWORD")
    if password is None:
        if not sys.stdin.isatty():
            _fail("set CML_WORKER_API_PASSWORD, or run it in a terminal")
        password = typer.prompt(f"Password of {username}", hide_input=True)
    probed: list[Probed] = []

    async def run() -> None:
        probed.append(await probe(server, username, password, minutes))

    run_until_signalled(run())
    if not probed:
        _fail("stopped before the end: there is no report")
    [result] = probed
    report.write_text(result.report)
    if as_json:
        print(msgspec.json.encode(result.findings).decode())
    else:
        show(result.findings, Console())
        Console().print(f"The report is in {report}.", soft_wrap=True)
    sys.exit(exit_code(result.findings))


@store_commands.command(name="copy")
def copy_records(
    source: Annotated[
        tuple[str, Path],
        typer.Option("--from", metavar="sqlite PATH", help="The database file of an embedded LCM."),
    ],
    target: Annotated[
        tuple[str, str], typer.Option("--to", metavar="mongodb URL", help="An empty MongoDB database.")
    ],
) -> None:
    """Copy the records of an embedded LCM, which must not run, to MongoDB, and verify the copy."""
    from lcm.cli.running import run_until_signalled
    from lcm.cli.store_copy import copy_with_progress
    from lcm.control_plane.store.copy import CopyFailed
    from lcm.control_plane.store.port import StoreUnavailable

    (source_kind, path), (target_kind, url) = source, target
    if (source_kind, target_kind) != ("sqlite", "mongodb"):
        _fail("only --from sqlite PATH --to mongodb URL is supported")
    if not path.is_file():
        _fail(f"there is no file {path}; an embedded LCM keeps it as lcm.db in its data directory")
    with _errors_in_one_sentence(CopyFailed, StoreUnavailable):
        run_until_signalled(copy_with_progress(path, url))


@app.command(name="init", rich_help_panel=SERVERS_PANEL)
def write_configuration(
    directory: Annotated[Path, typer.Argument(help="Where to write them.")] = Path("config"),
) -> None:
    """Write copies of the built-in regions and worker templates, to edit them."""
    from lcm.defaults import write_copies

    with _errors_in_one_sentence(OSError):
        for path, is_new in write_copies(directory):
            print(f"{path} is written" if is_new else f"{path} exists and is kept")


@app.command(rich_help_panel=SERVERS_PANEL)
def certificates(
    directory: Annotated[Path, typer.Argument(help="Where the certificates and keys are written.")],
    names: Annotated[
        list[str],
        typer.Argument(
            help="The host of each certificate, with its further names by commas: cp1,cp1.example."
        ),
    ],
    authority: Annotated[
        Path | None, typer.Option(help="Directory of the authority with its key. Default: the same.")
    ] = None,
    mode: Annotated[
        str, typer.Option(help="Permissions of what is written, but of the authority's key.")
    ] = "600",
) -> None:
    """Make or renew certificates for TLS between hosts, of an authority of your own."""
    from lcm.cli.own_certificates import sign_certificate
    from lcm.core.clock import SystemClock

    if re.fullmatch("[0-7]{3}", mode) is None:
        raise typer.BadParameter("write three digits, as 600 or 644", param_hint="--mode")
    certified = [name.split(",") for name in names]
    for host, *_ in certified:
        if re.fullmatch("[a-zA-Z0-9:][a-zA-Z0-9.:_-]*", host) is None or host == "ca":
            message = f"{host!r} cannot name the files: begin with the name or address of the host, not 'ca'"
            raise typer.BadParameter(message, param_hint="NAMES")
    with _errors_in_one_sentence(OSError):
        for host, *others in certified:
            files = sign_certificate(directory, host, (host, *others), SystemClock().now(), authority)
            for name in (host, f"{host}-key", f"{host}-both", "ca"):
                (directory / f"{name}.pem").chmod(int(mode, 8))
            print(f"{files.certificate} is for {', '.join((host, *others))}")


@app.command(name="version", rich_help_panel=contexts.PANEL)
def show_version() -> None:
    """Print the version."""
    from lcm.cli.about import version_line

    print(version_line())


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _flags(pairs: list[str] | None, **flags: object) -> dict[str, str]:
    """The settings given on the command line, by the name of their variable."""
    given = {name: str(value) for name, value in flags.items() if value is not None}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator:
            _fail(f"--set {pair}: write NAME=VALUE")
        given[name] = value
    return given


def _run_process(process: str, config: Path | None, flags: dict[str, str], options: RunOptions) -> None:
    """Load the settings, configure logging, and run; print one sentence if the process cannot start."""
    import msgspec
    from rich.console import Console

    from lcm.cli.processes import RUNNERS, Answering, StartFailed
    from lcm.cli.running import run_until_signalled
    from lcm.cli.settings import PROCESSES, WrongSettings, load
    from lcm.control_plane.store.port import StoreUnavailable
    from lcm.core.configuration import ConfigurationError
    from lcm.core.telemetry import configure_logging
    from lcm.web.server import AddressInUse

    configure_logging("json" if options.log_json else "human", options.log_level)

    def announce(answering: Answering) -> None:
        if options.as_json:
            print(msgspec.json.encode(answering).decode(), flush=True)
        else:
            Console().print(f"[bold green]{process} answers[/] at [bold]{answering.url}[/]", soft_wrap=True)

    try:
        loaded = load(process, PROCESSES[process], config, flags)
    except WrongSettings as wrong:
        _fail(str(wrong))
    expected = (StartFailed, AddressInUse, StoreUnavailable, ConfigurationError, FileNotFoundError)
    with _errors_in_one_sentence(*expected):
        run_until_signalled(
            RUNNERS[process](loaded.settings, announce), until_stdin_closes=options.until_stdin_closes
        )


@contextlib.contextmanager
def _errors_in_one_sentence(*expected: type[Exception]) -> Iterator[None]:
    """Print one of these errors without a stack trace, and exit with an error."""
    error: BaseException | None = None
    try:
        yield
    except* expected as errors:
        error = errors  # before Python 3.11.4 an exit from inside this block would be wrapped into a group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text("lcm: ", "bold red") + Text(message, "default"), soft_wrap=True)
    sys.exit(1)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        show_version()
        raise typer.Exit


@app.callback()
def of_all_commands(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which LCM, of 'lcm context list'.")
    ] = None,
) -> None:
    """Lablet Cloud Manager: fleets of Cisco Modeling Labs workers on EC2."""
    choose_context(context)


def main() -> None:
    collect_rarely()
    leave_quietly_on_signals()
    try:
        call = quick.call_of(VERBS, sys.argv[1:]) if COMPLETION not in os.environ else None
        try:
            (call or app)()
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        what = missing_extra(error)
        if what is None:
            raise
        _fail(what)
    except BrokenPipeError:
        # The reader, `head` for instance, has seen enough; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
