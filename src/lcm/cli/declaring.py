"""Commands that make the fleet as files say: apply, diff, and delete with files.

The control plane plans; here the plan is shown, confirmed and sent. Whatever interrupts it, the same files
applied again do the rest.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from lcm.cli.acting import DryRun, Timeout, Wait, Yes, duration_of, wait_until
from lcm.cli.kinds import WORKER
from lcm.cli.output import format_of, one_line, print_document, usd
from lcm.cli.reading import Output
from lcm.cli.terminal import Exit, code_of, confirm, connected, fail, note, paint, plainly

if TYPE_CHECKING:
    from lcm.client import Lcm
    from lcm.rest.plans import FleetPlan, PlannedStep
    from lcm.rest.schemas import WorkerView

PANEL: Final = "Act"
Files = Annotated[
    list[str],
    typer.Option(
        "--file", "-f", metavar="FILE", help="A fleet file, a directory of them, or - for standard input."
    ),
]
FileSet = Annotated[
    str | None,
    typer.Option(
        "--set", metavar="NAME", help="The set that the files belong to, for --prune. Default: default."
    ),
]
Prune = Annotated[
    bool,
    typer.Option("--prune", help="Delete what was created from files of this set and is in none of them."),
]
_SIGNS: Final = {"create": ("+", "32"), "change": ("~", "33"), "delete": ("-", "31"), "keep": ("=", "90")}
_DONE: Final = {"create": "created", "change": "changed", "delete": "deleted"}


def apply(
    files: Files,
    file_set: FileSet = None,
    prune: Prune = False,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
    dry_run: DryRun = False,
) -> None:
    """Make templates, workers, definitions and classes as fleet files say. Repeating it changes nothing."""
    seconds = duration_of(timeout).total_seconds()
    with connected() as lcm:
        plan = _planned(lcm, files, file_set=file_set, prune=prune)
        if dry_run:
            _print_plan(plan)
            return
        _confirm_deletions(plan, is_given=yes)
        first = _carry_out(lcm, plan.due)
        if wait:
            running = [(WORKER, worker) for worker in _that_are_to_run(lcm, plan)]
            if running:
                wait_until(lcm, running, "ready", seconds)
        if first is not None:
            sys.exit(first)


def _that_are_to_run(lcm: "Lcm", plan: "FleetPlan") -> "Iterator[WorkerView]":
    """Yield the workers of the files that are to run; one whose creation was refused is not there."""
    from lcm.client import NotFound

    for step in plan.steps:
        if step.kind != "worker" or step.action == "delete":
            continue
        with suppress(NotFound):
            worker = lcm.workers.get(step.name)
            if str(worker.desired_status) == "running":
                yield worker


def diff(
    files: Files, file_set: FileSet = None, prune: Prune = False, output_format: Output = "table"
) -> None:
    """Show what 'apply' would change: exit code 0 for nothing, 1 for something, higher for an error."""
    form = format_of(output_format)
    with connected(refused=Exit.USAGE) as lcm:
        plan = _planned(lcm, files, file_set=file_set, prune=prune, refused=Exit.USAGE)
    if form.is_table:
        _print_plan(plan)
    elif form.name == "name":
        for step in plan.due:
            print(f"{step.kind}/{step.name}")
    else:
        print_document(plan, form)
    if plan.due:
        sys.exit(Exit.FAILED)


def delete_files(
    files: Sequence[str], *, is_confirmed: bool, dry_run: bool, wait_seconds: float | None
) -> None:
    """Delete what the files name; `wait_seconds` is how long to wait for it."""
    with connected() as lcm:
        plan = _planned(lcm, files, delete=True)
        if dry_run:
            _print_plan(plan)
            return
        _confirm_deletions(plan, is_given=is_confirmed)
        workers = [(WORKER, lcm.workers.get(step.name)) for step in plan.due if step.kind == "worker"]
        first = _carry_out(lcm, plan.due)
        if wait_seconds is not None and workers:
            wait_until(lcm, workers, "deleted", wait_seconds)
        if first is not None:
            sys.exit(first)


def _planned(
    lcm: "Lcm", files: Sequence[str], *, file_set: str | None = None, refused: Exit = Exit.FAILED, **how: bool
) -> "FleetPlan":
    """Return the plan; end with what is wrong with the files, all of it."""
    from lcm.cli.fleet_files import mistakes_of, read_documents, resource_of
    from lcm.core.configuration import ConfigurationError
    from lcm.rest.plans import DEFAULT_SET

    try:
        documents = read_documents(files)
        resources = [resource_of(document) for document in documents]
    except ConfigurationError as error:
        fail(str(error), Exit.USAGE)
    plan = lcm.fleet.plan(resources, file_set=file_set or DEFAULT_SET, **how)
    mistakes = list(map(str, mistakes_of(plan, documents)))
    if mistakes:
        fail("nothing was changed; correct this first\n" + "\n".join(mistakes), refused)
    return plan


def _confirm_deletions(plan: "FleetPlan", *, is_given: bool) -> None:
    gone = [step for step in plan.due if step.action == "delete"]
    if not gone:
        return
    if not is_given:
        _print_steps(gone, sys.stderr)
    confirm(f"Delete {len(gone)} of the fleet?", is_given=is_given)


def _carry_out(lcm: "Lcm", steps: "Sequence[PlannedStep]") -> Exit | None:
    """Send the requests of the steps; what is refused is said and the others go on. Return its exit code."""
    from lcm.client import Refused

    first: Exit | None = None
    for step in steps:
        try:
            lcm.fleet.carry_out(step)
        except Refused as refused:
            note(f"{paint('lcm:', '1;31', sys.stderr)} {step.kind}/{step.name}: {plainly(refused)}")
            first = first or code_of(refused)
            continue
        print(f"{step.kind}/{step.name} {_DONE[step.action]}", flush=True)
    return first


def _print_plan(plan: "FleetPlan") -> None:
    _print_steps([step for step in plan.steps if step.action != "keep" or step.reason], sys.stdout)
    if plan.due:
        now, afterwards = usd(plan.usd_per_hour_now), usd(plan.usd_per_hour_after)
        print(f"cost per hour: {now} now, {afterwards} afterwards, without sessions")


def _print_steps(steps: "Iterable[PlannedStep]", stream: TextIO) -> None:
    for step in steps:
        sign, style = _SIGNS[step.action]
        text = one_line(f" {step.kind}/{step.name}" + (f"  {step.reason}" if step.reason else ""))
        print(f"{paint(sign, style, stream)}{text}", file=stream)
        for change in step.changes:
            text = f"    {change.field}: {_shown(change.before)} -> {_shown(change.after)}"
            print(one_line(text), file=stream)


def _shown(value: Any) -> str:
    return "(none)" if value is None else str(value)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {"apply": apply, "diff": diff}
