"""Which command the first words of a command line name.

Owns: the shell's own commands, told in words, and finding those and the methods.
Refuses to know: what they do, and flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import alike, meant, nearest

if TYPE_CHECKING:
    from kbproc.calls.method import Method, Registry

# The shell's own commands: name → (arguments, summary).
OWN_COMMANDS: dict[str, tuple[str, str]] = {
    "call": ("METHOD [JSON | KEY=VALUE …] [-]", "Send one request to any method."),
    "serve": ("[FLAGS]", "Answer JSON-RPC requests on stdin and stdout."),
    "profile save": ("NAME FLAGS", "Keep the settings that the flags name."),
    "profile use": ("NAME | --none", "Choose the profile for when none is named."),
    "profile list": ("", "List the profiles."),
    "profile show": ("[NAME]", "Show a profile, or what is in effect and why."),
    "profile delete": ("NAME", "Delete a profile; the store that it names stays."),
    "link": ("[FOLDER] [FLAGS]", "Bind a folder to a store and a knowledge base."),
    "unlink": ("[FOLDER]", "Take a folder's link away."),
    "exit-codes": ("", "List the exit codes and the errors behind them."),
    "completion": ("bash|zsh|fish", "Print a completion script for a shell."),
    "gen": ("[--check]", "Regenerate schemas and docs, inside the repository."),
    "help": ("[COMMAND]", "Show a command's help."),
}
OWN_EXAMPLES: dict[str, tuple[str, ...]] = {
    "call": (
        'kbproc call search query="install git" limit=3',
        """kbproc call doc.list '{"limit": 5}'""",
        'echo \'{"slug": "handbook"}\' | kbproc call kb.create -',
    ),
    "serve": ("kbproc serve --root docs --scopes doc:read,kb:read",),
    "profile save": (
        "kbproc profile save work --store ~/work/kb --kb handbook",
        "kbproc --profile work search 'install git'",
    ),
    "profile use": ("kbproc profile use work", "kbproc profile use --none"),
    "profile list": ("kbproc profile list",),
    "profile show": ("kbproc profile show work", "kbproc profile show"),
    "profile delete": ("kbproc profile delete work",),
    "link": (
        "kbproc link --store ~/work/kb --kb handbook",
        "kbproc link ~/projects/site --kb site",
    ),
    "unlink": ("kbproc unlink ~/projects/site",),
    "exit-codes": ("kbproc exit-codes",),
    "completion": ("source <(kbproc completion bash)",),
    "gen": ("kbproc gen --check",),
    "help": ("kbproc help doc list",),
}
# Those of profiles and links.
BINDING = (*(name for name in OWN_COMMANDS if name.startswith("profile ")), "link", "unlink")


def own_command(words: list[str]) -> tuple[str | None, list[str]]:
    """The shell's own command that the first words name, and what follows them."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in OWN_COMMANDS:
            return name, words[count:]
    return None, words


def spaced_commands(noun: str) -> list[str]:
    """The shell's own commands of two words, such as `profile save`."""
    return [name for name in OWN_COMMANDS if name.startswith(f"{noun} ")]


def nouns(registry: Registry) -> set[str]:
    """The first words of the commands that have two."""
    dotted = {name.partition(".")[0] for name in registry.methods if "." in name}
    return dotted | {name.partition(" ")[0] for name in OWN_COMMANDS if " " in name}


def find_command(registry: Registry, words: list[str]) -> tuple[Method, list[str]]:
    """The method that the first words name, and what follows them.

    Raises input.unknown_method with the nearest commands.
    """
    aliases = {method.alias: method for method in registry.methods.values() if method.alias}
    spaced = registry.methods.get(".".join(words[:2]))
    if spaced is not None and "." not in words[0]:
        return spaced, words[2:]
    alone = registry.methods.get(words[0]) or aliases.get(words[0])
    if alone is not None:
        return alone, words[1:]
    raise _unknown_command(registry, words, list(aliases))


def _unknown_command(registry: Registry, words: list[str], aliases: list[str]) -> KbprocError:
    known = nouns(registry)
    if words[0] in known:
        return _unknown_verb(registry, words[0], words[1:2])
    commands = [name.replace(".", " ") for name in registry.methods]
    every = {*commands, *aliases, *OWN_COMMANDS, *known}
    like = alike(words[0], every)
    return KbprocError(
        "input.unknown_method",
        f"There is no command {words[0]!r}.",
        valid_values=None if like is None else nearest(words[0], every),
        hint=f"{meant(like and f'kbproc {like}')}See kbproc --help.",
    )


def _unknown_verb(registry: Registry, noun: str, following: list[str]) -> KbprocError:
    names = (name.replace(".", " ") for name in (*registry.methods, *OWN_COMMANDS))
    known = {name.removeprefix(f"{noun} "): name for name in names if name.startswith(f"{noun} ")}
    typed = next((word for word in following if not word.startswith("-")), None)
    like = None if typed is None else alike(typed, known)
    near = sorted(known) if typed is None else nearest(typed, known)
    return KbprocError(
        "input.unknown_method",
        f"{noun} needs a word more."
        if typed is None
        else f"There is no command {f'{noun} {typed}'!r}.",
        valid_values=[known[name] for name in near],
        hint=f"{meant(like and f'kbproc {known[like]}')}See kbproc {noun} --help.",
    )
