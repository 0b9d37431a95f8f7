"""Completion of names that live: what a shell offers after a command that takes them."""

from collections.abc import Iterator
from typing import Final

import typer

from lcm.cli.kinds import KINDS, WORKER, Kind, is_kind, kind_of
from lcm.cli.terminal import choose_context, chosen_context

SHELL_WAITS_SECONDS: Final = 2.0


def kinds(incomplete: str) -> list[str]:
    """Offer the kinds of resources."""
    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete)]


def names_of_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the names of the kind that is written before."""
    word = str(ctx.params.get("kind") or "")
    return list(_living(ctx, kind_of(word), incomplete)) if is_kind(word) else []


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer kinds and the names of workers, or the names of the kind that is written before."""
    written = [str(each) for each in ctx.params.get("names") or ()]
    if written and is_kind(written[0]):
        return list(_living(ctx, kind_of(written[0]), incomplete))
    offered = [] if written else [kind.name for kind in KINDS if kind.name.startswith(incomplete)]
    return [*offered, *_living(ctx, WORKER, incomplete)]


def workers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the names of workers."""
    return list(_living(ctx, WORKER, incomplete))


def templates(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the names of templates."""
    return list(_living(ctx, kind_of("templates"), incomplete))


def _living(ctx: typer.Context, kind: Kind, incomplete: str) -> Iterator[str]:
    """Yield the names that begin so; none where LCM cannot be asked: a shell shows no errors."""
    from lcm.client import ClientError, Lcm

    choose_context(ctx.find_root().params.get("context"))
    try:
        with Lcm(context=chosen_context(), timeout_seconds=SHELL_WAITS_SECONDS, retry_seconds=0.0) as lcm:
            found = [kind.name_of(item) for item in kind.list_all(lcm)]
    except ClientError:
        return
    yield from (name for name in found if name.startswith(incomplete))
