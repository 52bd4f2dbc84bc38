"""``--config FILE``: options from a TOML file, and the file that repeats a run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from spectrograd import __version__
from spectrograd.typing import JsonObject

# What says how to talk, not what to compute.
_LEFT_OUT = ("config", "help", "verbose", "quiet", "debug", "dry_run")
_ABOUT = ("command", "version")


def load(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Make the values of the file the defaults of the command; the command line goes before them."""
    if path is None or context.resilient_parsing:
        return path
    values = _read(path)
    command = values.get("command", context.info_name)
    if command != context.info_name:
        raise click.BadParameter(
            f"{path} is for 'spectrograd {command}', not for 'spectrograd {context.info_name}'"
        )
    names = {_key(option): str(option.name) for option in _recorded(context)}
    unknown = [key for key in values if key not in (*names, *_ABOUT)]
    if unknown:
        raise click.BadParameter(f"{path}: unknown key {unknown[0]!r}; known are {', '.join(sorted(names))}")
    options = {_key(option): option for option in _recorded(context)}
    for key, value in values.items():
        wanted = _misfit(options[key], value) if key in options else None
        if wanted is not None:
            raise click.BadParameter(f"{path}: {key} is {_shown(value)}; {wanted} is needed")
    context.default_map = {names[key]: value for key, value in values.items() if key in names}
    return path


def _misfit(option: click.Parameter, value: object) -> str | None:
    """What an option takes, where a value of TOML is none of it; texts are for click to judge."""
    many = option.nargs == -1 or getattr(option, "multiple", False)
    if many or isinstance(value, list):
        fits = many and isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
        return None if fits else "a list" if many else "one value"
    if getattr(option, "is_flag", False):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(value, bool):
        return "a number or a text"
    whole = isinstance(option.type, click.types.IntParamType) or option.type.name == "number or auto"
    if whole:
        return None if isinstance(value, int | str) else "a whole number"
    return None if isinstance(value, str | int | float) else "a number or a text"


def _shown(value: object) -> str:
    return _toml(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"


def save(context: click.Context, args: Sequence[str]) -> None:
    """Write the file that repeats the run beside its outputs; without any there is nothing to be beside."""
    target = _beside(context)
    if target is not None:
        from spectrograd.io.write_graph import write_whole_text

        write_whole_text(target, "".join(_lines(context, args, target)))


def _read(path: str) -> JsonObject:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: not TOML ({error})") from None


def _beside(context: click.Context) -> Path | None:
    values = {_key(option): context.params.get(str(option.name)) for option in _recorded(context)}
    for folder in (values.get("run"), values.get("output")):
        if folder is not None and Path(folder).is_dir() and Path(folder).suffix != ".parquet":
            return Path(folder, "run.toml")
    from spectrograd.io.write_graph import is_stream

    for file in (values.get("output"), values.get("report"), values.get("summary-json")):
        if file not in (None, "-") and not is_stream(file):
            return Path(file).with_suffix(".run.toml")
    return None


def _recorded(context: click.Context) -> list[click.Parameter]:
    return [option for option in context.command.params if option.name not in _LEFT_OUT]


def _key(parameter: click.Parameter) -> str:
    """The name a person would look for: the long option, or the argument's own."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name)
    return max(parameter.opts, key=len).lstrip("-")


def _lines(context: click.Context, args: Sequence[str], target: Path) -> Iterator[str]:
    yield f"# repeat: spectrograd {context.info_name} --config {target.name} (options beside it win)\n"
    yield f"command = {_toml(context.info_name)}\nversion = {_toml(__version__)}\n"
    typed, _, _ = context.command.make_parser(context).parse_args(list(args))
    for option in _recorded(context):
        value = _raw(context, option, typed)
        if value is not None:
            yield f"{_key(option)} = {_toml(value)}\n"


def _raw(context: click.Context, option: click.Parameter, typed: Mapping[str, object]) -> object:
    """The value before any callback: typed, from the file, or the default; None where there is none."""
    name = str(option.name)
    for value in (typed.get(name), (context.default_map or {}).get(name), option.get_default(context)):
        if isinstance(value, str | int | float) or (isinstance(value, list | tuple) and value):
            return _as_declared(option, value)
    return None


def _as_declared(option: click.Parameter, value: Any) -> object:
    if isinstance(value, str) and isinstance(option.type, click.types.IntParamType):
        return int(value)
    if isinstance(value, str) and isinstance(option.type, click.types.FloatParamType):
        return float(value)
    if option.type.name == "number or auto" and value != "auto":
        return int(value)
    return value


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str | bool):  # JSON's spelling is TOML's, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
