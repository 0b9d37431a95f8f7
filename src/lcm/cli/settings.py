"""Sources of a process's settings: defaults, a YAML file, the environment, flags. Later sources override.

A setting is named by its environment variable; the file uses it in lower case. One file serves all
processes, so a name that belongs to another process is fine, and one that belongs to none is a mistake.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote

import yaml
from pydantic import AliasChoices, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from lcm import defaults
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.redaction import redactor
from lcm.core.secret_strength import keys_in
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.worker_controller.settings import WorkerControllerSettings

S = TypeVar("S", bound=BaseSettings)

PROCESSES: Final[Mapping[str, type[BaseSettings]]] = {
    "control-plane": ControlPlaneSettings,
    "resource-scheduler": ResourceSchedulerSettings,
    "lablet-controller": LabletControllerSettings,
    "worker-controller": WorkerControllerSettings,
}

_SHIPPED: Final = tuple(Path("config") / name for name in defaults.NAMES)
"""The values of settings that name a file without which LCM has its own."""
DEFAULT: Final = "default"
ENVIRONMENT: Final = "environment"
FLAG: Final = "flag"
MASK: Final = "********"


class WrongSettings(Exception):
    """Every wrong setting, one line each."""

    def __init__(self, process: str, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        what = "this setting is" if len(self.problems) == 1 else f"these {len(self.problems)} settings are"
        super().__init__(f"{process} cannot start, {what} wrong:\n  " + "\n  ".join(self.problems))


@dataclass(frozen=True)
class Setting:
    """One setting in force."""

    variable: str
    value: str
    source: str
    meaning: str


@dataclass(frozen=True)
class Loaded(Generic[S]):
    """Settings in force, and the source of each."""

    settings: S
    sources: Mapping[str, str]

    def shown(self) -> list[Setting]:
        """The settings to print; secrets are masked."""
        return [
            Setting(
                variables[0],
                _text(getattr(self.settings, name)),
                self.sources.get(name, DEFAULT),
                field.description or "",
            )
            for name, field, variables in _fields(type(self.settings))
        ]


def load(process: str, kind: type[S], config: Path | None, flags: Mapping[str, str]) -> Loaded[S]:
    """Load and check. Raises WrongSettings with every problem. Secrets among them are never logged."""
    problems: list[str] = []
    from_file = _read(config, problems)
    known = {variable for settings in PROCESSES.values() for _, _, vs in _fields(settings) for variable in vs}
    for given, where in ((from_file, str(config)), (flags, FLAG)):
        problems += [_unknown(name, where, known) for name in given if name.upper() not in known]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers: tuple[tuple[Mapping[str, Any], str], ...] = (
        (from_file, str(config)),
        (os.environ, ENVIRONMENT),
        (flags, FLAG),
    )
    for layer, source in layers:
        by_variable = {name.upper(): value for name, value in layer.items()}
        for name, _, variables in _fields(kind):
            for variable in variables:
                if variable in by_variable:
                    values[name], sources[name] = by_variable[variable], source
                    break
    for name, field, _ in _fields(kind):
        if name not in values and field.default in _SHIPPED:
            values[name] = defaults.find(field.default.name)
    try:
        settings = kind(**values)
    except ValidationError as error:
        raise WrongSettings(process, problems + list(_explained(error, kind, sources))) from None
    if problems:
        raise WrongSettings(process, problems)
    _protect_secrets(settings)
    return Loaded(settings, sources)


def _protect_secrets(settings: BaseSettings) -> None:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            secret = value.get_secret_value()
            redactor.protect(secret)
            redactor.protect(_password_in(secret))
            if "://" not in secret:
                for key in keys_in(secret):
                    redactor.protect(key)


def _password_in(address: str) -> str:
    """The password in https://user:password@host; empty if there is none."""
    user, at, _ = address.partition("://")[2].partition("@")
    return unquote(user.partition(":")[2]) if at else ""


def _read(config: Path | None, problems: list[str]) -> dict[str, Any]:
    if config is None:
        return {}
    try:
        content = yaml.safe_load(config.read_text())
    except (OSError, UnicodeError) as error:
        problems.append(f"{config}: {error}")
        return {}
    except yaml.YAMLError as error:
        problems.append(f"{config}: not YAML: {' '.join(str(error).split())}")
        return {}
    if content is None:
        return {}
    if not isinstance(content, dict):
        problems.append(f"{config}: write one 'name: value' per line")
        return {}
    return {str(name): value for name, value in content.items()}


def _unknown(name: str, where: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.upper(), known, 1)
    hint = f"; did you mean {close[0]}?" if close else "; 'lcm config' lists what there is"
    return f"{name} ({where}): no process has such a setting{hint}"


def _explained(error: ValidationError, kind: type[BaseSettings], sources: Mapping[str, str]) -> Iterator[str]:
    variable_of = {name: variables[0] for name, _, variables in _fields(kind)}
    for wrong in error.errors(include_input=False, include_url=False):
        message = wrong["msg"].removeprefix("Value error, ")
        name = next((str(part) for part in wrong["loc"]), "")
        if name in variable_of:
            yield f"{variable_of[name]} ({sources.get(name, DEFAULT)}): {message}"
        else:
            yield message


def _fields(kind: type[BaseSettings]) -> Iterator[tuple[str, FieldInfo, list[str]]]:
    """Each field with the variables it is read from, the usual one first."""
    for name, field in kind.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices):
            yield name, field, [str(choice).upper() for choice in alias.choices]
        else:
            yield name, field, [str(alias or name).upper()]


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
