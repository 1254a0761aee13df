"""Settings from TOML, `OMNIFLOW_*` variables and flags, checked once, each with the place it came from.

The dataclasses beside the components say what there is; this file only reads their type hints:

    Settings
      control: ControlSettings         [control]       listen = ...     OMNIFLOW_CONTROL_LISTEN   --set control.listen=...
      supervisor: SupervisorSettings   [supervisor]    ...
      environments: name -> python     [environments]  assistant = ...  OMNIFLOW_ENVIRONMENTS_ASSISTANT

Later places win: default, file, variable, flag. Every mistake is reported at once, as INVALID_CONFIG, with the place
and the nearest key. No setting is ever negative, so negative numbers are refused here for all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_server.control.settings import ControlSettings
from omniflow_server.launch.settings import SupervisorSettings

T = TypeVar("T")

DEFAULT_FILE = Path("omniflow.toml")
PREFIX = "OMNIFLOW_"
# Variables that are no settings: read before settings are, or set by a process for its children.
RESERVED = frozenset({"OMNIFLOW_CONFIG", "OMNIFLOW_RUNTIME_DIR", "OMNIFLOW_PARENT_PID", "OMNIFLOW_TARGET"})
DEFAULT_SOURCE = "default"
# So similar to a known name that it is a slip of the pen. Roles have variables of their own, which we do not know.
_SLIP_OF_THE_PEN = 0.85
_CREDENTIALS = re.compile(r"(?<=:)//[^/@\s]*@")
_SECRET = re.compile(r"(^|[._])(key|secret|token|password)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator can set."""

    control: ControlSettings = field(default_factory=ControlSettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    environments: Mapping[str, str] = field(default_factory=dict)
    """Python interpreter of each environment that roles name; `base` is by default the one that runs `omniflow`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value and its source: "default", "omniflow.toml:3", the name of a variable or a flag."""

    key: str
    value: Any
    source: str

    @property
    def shown(self) -> Any:
        """The value for people and logs: of a secret only whether it is set, of a URL not who may enter."""
        if self.value and _SECRET.search(self.key):
            return "(set)"
        return _CREDENTIALS.sub("//(set)@", self.value) if isinstance(self.value, str) else plain(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings, every value with its source, and the TOML file if there was one."""

    settings: Settings
    values: tuple[Setting, ...]
    file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A setting given on the command line; `source` is the flag as typed, such as `--listen`."""

    key: str
    text: str
    source: str


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Iterable[Flag] = (),
) -> Configuration:
    """Reads all places and checks them. Raises OmniFlowError INVALID_CONFIG with one violation per mistake."""
    environ = os.environ if environ is None else environ
    reading = _Reading(Settings)
    path = _find_file(file, environ)
    if path:
        _read_toml(reading, path)
    _read_environment(reading, environ)
    for flag in flags:
        reading.take_text(flag.key, flag.text, flag.source)
    settings = reading.finish()
    return Configuration(settings=settings, values=tuple(reading.described(settings)), file=path)


def settings_flag(text: str) -> Flag:
    """`--set control.listen=127.0.0.1:0` as a flag."""
    key, separator, value = text.partition("=")
    if not separator:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"--set {text}: write it as --set section.key=value")
    return Flag(key=key.strip(), text=value, source="--set")


def variable_of(key: str) -> str:
    """The variable of a key: `control.listen` is OMNIFLOW_CONTROL_LISTEN."""
    return PREFIX + re.sub(r"[^A-Za-z0-9]", "_", key).upper()


def dump_json(settings: Any) -> str:
    """A settings dataclass as text for another process of ours; `parse_json` reads it."""
    return json.dumps(plain(settings), indent=2)


def parse_json(kind: type[T], text: str, *, source: str) -> T:
    """The settings dataclass `kind` from `dump_json`'s text. Raises OmniFlowError INVALID_CONFIG."""
    reading = _Reading(kind)
    try:
        reading.take_table(json.loads(text), lambda key: source)
    except json.JSONDecodeError as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{source} is not JSON: {problem}") from None
    return reading.finish()


def plain(value: Any) -> Any:
    """A setting, or a dataclass of settings, as TOML and JSON can say it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    named = file or (Path(environ["OMNIFLOW_CONFIG"]) if environ.get("OMNIFLOW_CONFIG") else None)
    if named is None:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    if not named.is_file():
        raise OmniFlowError(Reason.INVALID_CONFIG, f"there is no configuration file {named}")
    return named


def _read_toml(reading: _Reading[Settings], path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise OmniFlowError(Reason.INVALID_CONFIG, f"{path} cannot be read: {problem}") from None
    lines = dict(_lines_of_keys(text))
    reading.take_table(table, lambda key: f"{path}:{lines[key]}" if key in lines else str(path))


def _lines_of_keys(text: str) -> Iterator[tuple[str, int]]:
    """Line of each key written as `key = ...` under its `[section]`; tomllib itself does not tell."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            section = _unquoted(header[1])
            yield section, number
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            yield ".".join(filter(None, (section, _unquoted(key[1])))), number


def _unquoted(key: str) -> str:
    return re.sub(r"[\s\"']", "", key)


def _read_environment(reading: _Reading[Settings], environ: Mapping[str, str]) -> None:
    keys = {variable_of(key): key for key in reading.closed_keys()}
    tables = {variable_of(table) + "_": table for table in reading.open_tables()}
    sections = tuple(variable_of(key.partition(".")[0]) + "_" for key in reading.closed_keys())
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and name not in RESERVED):
        table = next((prefix for prefix in tables if variable.startswith(prefix)), None)
        if variable in keys:
            reading.take_text(keys[variable], environ[variable], variable)
        elif table and variable != table:
            reading.take_text(f"{tables[table]}.{variable.removeprefix(table).lower()}", environ[variable], variable)
        elif variable.startswith(sections) or difflib.get_close_matches(variable, keys, n=1, cutoff=_SLIP_OF_THE_PEN):
            reading.refuse(variable, f"no setting has the variable {variable}{_nearest(variable, keys)}")


class _MismatchError(Exception):
    """Its text completes "... is not"."""


class _Reading(typing.Generic[T]):
    """Values by key as they come in, checked against the type hints of a dataclass and the dataclasses in it."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._hints = dict(_leaves(kind))
        self._values: dict[str, Setting] = {}
        self._violations: list[Violation] = []

    def closed_keys(self) -> list[str]:
        """Keys of single settings."""
        return [key for key, hint in self._hints.items() if not _is_table(hint)]

    def open_tables(self) -> list[str]:
        """Keys of tables whose keys the operator chooses."""
        return [key for key, hint in self._hints.items() if _is_table(hint)]

    def take_table(self, table: Any, source_of: Callable[[str], str], prefix: str = "") -> None:
        """Values of a parsed TOML or JSON table."""
        if not isinstance(table, Mapping):
            self.refuse(prefix.rstrip(".") or "the file", f"must be a table ({source_of(prefix.rstrip('.'))})")
            return
        for name, value in table.items():
            key = f"{prefix}{name}"
            if self._is_section(key):
                self.take_table(value, source_of, f"{key}.")
            else:
                self._take(key, value, source_of(key), is_text=False)

    def take_text(self, key: str, text: str, source: str) -> None:
        """A value that a variable or a flag gives as text; lists are separated by commas."""
        self._take(key, text, source, is_text=True)

    def refuse(self, field_path: str, description: str) -> None:
        """Notes a mistake; `finish` raises them all."""
        self._violations.append(Violation(field=field_path, description=description))

    def finish(self) -> T:
        """The dataclass. Raises OmniFlowError INVALID_CONFIG when there was any mistake."""
        settings = self._build(self._kind, "") if not self._violations else None
        if self._violations or settings is None:
            first = f"{self._violations[0].field}: {self._violations[0].description}"
            more = f" (and {len(self._violations) - 1} more)" if len(self._violations) > 1 else ""
            raise OmniFlowError(Reason.INVALID_CONFIG, f"{first}{more}", violations=self._violations)
        return typing.cast("T", settings)

    def described(self, settings: T) -> Iterator[Setting]:
        """Every value of the finished settings with its source, in the order of declaration."""
        for key, hint in self._hints.items():
            if _is_table(hint):
                yield from (value for name, value in sorted(self._values.items()) if name.startswith(f"{key}."))
            else:
                default = Setting(key=key, value=_value_at(settings, key), source=DEFAULT_SOURCE)
                yield self._values.get(key, default)

    def _is_section(self, key: str) -> bool:
        return key not in self._values and (
            any(known.startswith(f"{key}.") for known in self._hints) or _is_table(self._hints.get(key))
        )

    def _hint_of(self, key: str) -> Any:
        """Type of a key, None for an unknown one."""
        table, _, name = key.rpartition(".")
        if _is_table(self._hints.get(table)) and name:
            return typing.get_args(self._hints[table])[1]
        hint = self._hints.get(key)
        return None if _is_table(hint) else hint

    def _take(self, key: str, value: Any, source: str, *, is_text: bool) -> None:
        hint = self._hint_of(key)
        if hint is None:
            self.refuse(key, f"unknown key ({source}){_nearest(key, self.closed_keys())}")
            return
        try:
            self._values[key] = Setting(key=key, value=_converted(hint, value, is_text=is_text), source=source)
        except _MismatchError as problem:
            shown = "its value" if _SECRET.search(key) else repr(value)
            self.refuse(key, f"{shown} is not {problem} ({source})")

    def _build(self, kind: type[Any], prefix: str) -> Any:
        given: dict[str, Any] = {}
        for name, hint in _fields(kind):
            key = f"{prefix}{name}"
            if dataclasses.is_dataclass(hint):
                given[name] = self._build(typing.cast("type[Any]", hint), f"{key}.")
            elif _is_table(hint):
                inside = {k: v.value for k, v in self._values.items() if k.startswith(f"{key}.")}
                given[name] = {k.removeprefix(f"{key}."): v for k, v in inside.items()}
            elif key in self._values:
                given[name] = self._values[key].value
        return self._construct(kind, given, prefix.rstrip("."))

    def _construct(self, kind: type[Any], given: Mapping[str, Any], section: str) -> Any:
        """Builds a dataclass; rules that its own __post_init__ checks become violations of its section."""
        try:
            return kind(**given)
        except OmniFlowError as problem:
            self._violations.extend(problem.violations or (Violation(field=section, description=problem.message),))
        except (ValueError, TypeError) as problem:
            self.refuse(section, str(problem))
        return None


def _fields(kind: type[Any]) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    return [(f.name, hints[f.name]) for f in dataclasses.fields(kind)]


def _leaves(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their types, through nested dataclasses."""
    for name, hint in _fields(kind):
        if dataclasses.is_dataclass(hint):
            yield from _leaves(typing.cast("type[Any]", hint), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", hint


def _is_table(hint: Any) -> bool:
    return typing.get_origin(hint) in (Mapping, dict)


def _value_at(settings: Any, key: str) -> Any:
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    beside = [other for other in names if other.partition(".")[0] == name.partition(".")[0]]
    return f"; known: {', '.join(beside or names)}"


def _converted(hint: Any, value: Any, *, is_text: bool) -> Any:
    """The value as its type. Raises _MismatchError."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        return None if value is None else _converted(inner, value, is_text=is_text)
    if origin is tuple:
        return _converted_list(typing.get_args(hint)[0], value, is_text=is_text)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _converted_enum(hint, value)
    return _SCALARS[hint](value, is_text)


def _converted_list(item: Any, value: Any, *, is_text: bool) -> tuple[Any, ...]:
    if is_text:
        return tuple(_converted(item, part.strip(), is_text=True) for part in value.split(",") if part.strip())
    if not isinstance(value, list):
        raise _MismatchError("a list")
    return tuple(_converted(item, part, is_text=False) for part in value)


def _converted_enum(kind: type[enum.Enum], value: Any) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        raise _MismatchError(f"one of {', '.join(str(member.value) for member in kind)}") from None


def _text(value: Any, is_text: bool) -> str:
    if not isinstance(value, str):
        raise _MismatchError("text in quotes")
    return value


def _switch(value: Any, is_text: bool) -> bool:
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if is_text and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise _MismatchError("true or false")
    return value


def _whole_number(value: Any, is_text: bool) -> int:
    if is_text and re.fullmatch(r"[0-9]+(_[0-9]+)*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _MismatchError("a whole number that is 0 or more")
    return value


def _number(value: Any, is_text: bool) -> float:
    try:
        number = math.nan if isinstance(value, bool) or (isinstance(value, str) and not is_text) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise _MismatchError("a number that is 0 or more")
    return number


_SCALARS: Mapping[Any, Callable[[Any, bool], Any]] = {
    str: _text,
    bool: _switch,
    int: _whole_number,
    float: _number,
    Path: lambda value, is_text: Path(_text(value, is_text)),
}
