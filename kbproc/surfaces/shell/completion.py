"""Makes completion scripts for shells.

The flags of all commands become one argparse tree, which shtab turns into a script. The
script asks kbproc for names such as those of knowledge bases.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kbproc.base.spared import import_completion
from kbproc.methods.calls.flags import Described, Flag, common_flags, flags_of
from kbproc.surfaces.shell.arguments import usage_error
from kbproc.surfaces.shell.commands import OWN_COMMANDS, methods_by_noun

if TYPE_CHECKING:
    from kbproc.methods.calls.registry import Names

SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset({"paths", "path"})
_FOLDERS = frozenset({"--store", "--root"})
_KBS = "kb list --limit 1000 --jq '.data[].slug'"
_AGENTS = "agent list --limit 1000 --jq '.data[].slug'"
_PROFILES = "profile list --jq '.data[].name'"
_PAGES = "docs --jq '.data[].page'"
# Flag, or noun and param → the command that lists its values.
_LISTING_COMMANDS: dict[str | tuple[str, str], str] = {
    "--kb": _KBS,
    "--profile": _PROFILES,
    "--agent": _AGENTS,
    ("kb", "slug"): _KBS,
    ("agent", "slug"): _AGENTS,
    ("schema", "name"): "schema --jq '.data.names[]'",
    ("describe", "method"): "describe --jq '.data.methods[].name'",
}


def script(registry: Names[Described], shell: str) -> str:
    """Returns a script that completes commands, flags and the flags' values."""
    if shell not in SHELLS:
        raise usage_error(
            f"There is no completion for {shell!r}.", "completion", valid_values=SHELLS
        )
    import_completion()
    import shtab

    text: str = shtab.complete(_tree(registry), shell)
    return text.rstrip() + "\n"


def _tree(registry: Names[Described]) -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="kbproc", add_help=False)
    commands = root.add_subparsers()
    nested: dict[str, Any] = {}
    for noun, methods in methods_by_noun(registry).items():
        alone = [method for method in methods if "." not in method.name]
        for method in alone:
            _command(commands, method.name, method)
        spaced = [method for method in methods if "." in method.name]
        if spaced:
            parser = commands.add_parser(noun, help=noun, add_help=False)
            nested[noun] = parser.add_subparsers()
            for method in spaced:
                _command(nested[noun], method.name.partition(".")[2], method)
    for method in registry.methods.values():
        if method.alias:
            _command(commands, method.alias, method)
    _own_commands(commands, nested, registry)
    return root


def _own_commands(commands: Any, nested: dict[str, Any], registry: Names[Described]) -> None:
    """Adds the shell's own commands; `nested`: noun → the commands below it."""
    for name, command in OWN_COMMANDS.items():
        noun, spaced, word = name.partition(" ")
        if spaced and noun not in nested:
            nested[noun] = commands.add_parser(noun, help=noun, add_help=False).add_subparsers()
        below = nested[noun] if spaced else commands
        parser = below.add_parser(word or name, help=_quotable(command.summary), add_help=False)
        _add(parser, [*command.flags, *command.common])
        if name == "call":
            parser.add_argument("method", choices=list(registry.methods))
        if name == "completion":
            parser.add_argument("shell", choices=SHELLS)
        if name in {"profile use", "profile show", "profile delete"}:
            profile: Any = parser.add_argument("name", nargs="?")
            profile.complete = _live_names(_PROFILES)
        if name == "docs":
            page: Any = parser.add_argument("page", nargs="?")
            page.complete = _live_names(_PAGES)
        if name in {"link", "unlink"}:
            import shtab

            folder: Any = parser.add_argument("folder", nargs="?")
            folder.complete = shtab.DIRECTORY


def _command(commands: Any, word: str, method: Described) -> None:
    parser = commands.add_parser(word, help=_quotable(method.summary), add_help=False)
    _add(parser, [*flags_of(method), *common_flags(method)], method.name.partition(".")[0])


def _add(parser: argparse.ArgumentParser, flags: Iterable[Flag], noun: str = "") -> None:
    for flag in flags:
        _add_flag(parser, flag, noun)


def _add_flag(parser: argparse.ArgumentParser, flag: Flag, noun: str) -> None:
    kind: dict[str, Any] = {"help": _quotable(flag.help)}
    if not flag.takes_value:
        switch = argparse.BooleanOptionalAction if flag.param else "store_true"
        parser.add_argument(flag.name, action=switch, **kind)
        return
    action = parser.add_argument(flag.name, choices=flag.enum, **kind)
    _complete(action, flag, noun)
    if flag.positional:
        many = "*" if flag.type == "array" else "?"
        place = parser.add_argument(str(flag.param), nargs=many, choices=flag.enum, **kind)
        _complete(place, flag, noun)


def _complete(action: argparse.Action, flag: Flag, noun: str) -> None:
    import shtab

    if flag.param in _FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    elif flag.name in _FOLDERS:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    else:
        command = _LISTING_COMMANDS.get((noun, flag.param or flag.name)) or _LISTING_COMMANDS.get(
            flag.name
        )
        if command is not None:
            action.complete = _live_names(command)  # type: ignore[attr-defined]


def _live_names(command: str) -> Any:
    """Returns a completion by the names that a command lists; none without a store."""
    import shtab

    line = f"kbproc {command} --format json 2>/dev/null"
    completion: dict[str, Any] = shtab.cmd(line)
    name = f"_kbproc_{command.partition(' --')[0].replace(' ', '_')}"
    # A function, because zsh would run the command as soon as it reads the script.
    zsh = f'{name}() {{ compadd -- ${{(f)"$({line})"}} }}'
    return {**completion, "zsh": name, "preamble": {**completion["preamble"], "zsh": zsh}}


def _quotable(text: str) -> str:
    """Returns the text without quotes, which zsh and fish quote poorly, and with `%%` for `%`."""
    return text.replace("%", "%%").replace('"', "").replace("'", "").replace("`", "")
