"""Finds the command that the first words of a command line name.

A command is a method or one of the shell's own commands, which are declared here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.base.clients import SERVERS
from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import MAX_IN_FLIGHT, MAX_LINE_BYTES
from kbproc.base.suggest import closest, did_you_mean, ranked
from kbproc.methods.calls.flags import GLOBAL_FLAGS, Described, Flag
from kbproc.surfaces.hooks.deadline import COUNT, DEADLINE_MS, LEAST_DEADLINE_MS, RECORD

if TYPE_CHECKING:
    from kbproc.methods.calls.registry import Names


_GENERAL = "general"


_AROUND = ("--store", "--kb", "--profile", "--agent", "--actor", "--log-level")
_CHANGES = ("--jq", "--profile", "--dry-run")


class Command(Struct, frozen=True, kw_only=True):
    """A command of the shell that is no method.

    `flags`: its own flags. `takes`: its global flags, beside --format and --help.
    """

    name: str
    usage: str
    summary: str
    examples: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    takes: tuple[str, ...] = ()

    @property
    def common(self) -> list[Flag]:
        """Returns the global flags that the command takes."""
        names = {"--format", "--help", *self.takes}
        return [flag for flag in GLOBAL_FLAGS if flag.name in names]


_SERVE_FLAGS: tuple[Flag, ...] = (
    Flag(name="--protocol", type="string", help="refuse to serve any other protocol", enum=["1"]),
    Flag(
        name="--root",
        type="string",
        help="folder that files are read below, and where relative paths start; the working "
        "directory if left out",
    ),
    Flag(
        name="--scopes",
        type="string",
        help="what the client may do, such as doc:read,kb:read; everything if left out",
    ),
    Flag(
        name="--max-line-bytes",
        type="integer",
        help="longest line, in and out",
        default=MAX_LINE_BYTES,
        minimum=1024,
    ),
    Flag(
        name="--max-in-flight",
        type="integer",
        help="most requests at the same time",
        default=MAX_IN_FLIGHT,
        minimum=1,
    ),
    Flag(
        name="--allow-private-addresses",
        type="boolean",
        help="let doc.fetch reach private and local addresses",
    ),
    Flag(
        name="--thin",
        type="boolean",
        help="never open the store in this process: start another one for that",
    ),
    Flag(
        name="--approve",
        type="string",
        help="page: a request that needs a person waits until one decides on its plan, in the page "
        "(kbproc open) or by kbproc plan; without it the request ends with the plan",
        enum=["page"],
    ),
)

_MCP_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="--tools",
        type="string",
        help="sets and tools, with commas: default, minimal, notes, weknora, all, or names",
    ),
    Flag(
        name="--root",
        type="string",
        help="folder that files are read below, and where relative paths start; the client's root "
        "or the working directory if left out",
    ),
    *(flag for flag in _SERVE_FLAGS if flag.name in {"--allow-private-addresses", "--approve"}),
    Flag(
        name="--scopes",
        type="string",
        help="what the client may do; all but admin, knowledge:write_others and review:write if "
        "left out; +admin adds to these",
    ),
    Flag(
        name="--print-config",
        type="string",
        help="only print the settings that the client needs",
        enum=list(SERVERS),
    ),
)

_HOOK_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="--tokens",
        type="integer",
        help="most tokens that a prompt gets",
        default=500,
        minimum=100,
    ),
    Flag(
        name="--start-tokens",
        type="integer",
        help="most tokens that a session gets when it starts",
        default=800,
        minimum=100,
    ),
    Flag(
        name="--deadline-ms",
        type="integer",
        help="when a hook ends without output",
        default=DEADLINE_MS,
        minimum=LEAST_DEADLINE_MS,
    ),
    Flag(
        name="--quote",
        type="string",
        help="quote texts of these origins, too, with commas: web, import",
    ),
    Flag(
        name=RECORD,
        type="boolean",
        help="add the session to the store before it is compacted, and at its end",
    ),
    Flag(
        name=COUNT,
        type="boolean",
        help="count what hooks say and what the agent then cites or opens, for hook report",
    ),
)

_OPEN_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="--port",
        type="integer",
        help="port of the loopback; a free one if left out",
        minimum=1,
        maximum=65535,
    ),
    Flag(name="--read-only", type="boolean", help="refuse everything that writes"),
    Flag(name="--no-browser", type="boolean", help="only print the page's address"),
    *(flag for flag in _SERVE_FLAGS if flag.name == "--scopes"),
)


_START_FLAGS: tuple[Flag, ...] = (
    *(
        Flag(name=f"--{name}", type="boolean", help=help, default=True)
        for name, help in (
            ("model", "install the model for search by meaning"),
            ("link", "bind the folder to a knowledge base of its own"),
            ("read", "read the folder"),
            ("watch", "read its changes from now on"),
            ("chats", "read what was said to agents in this folder"),
            ("mcp", "add the MCP server to the agents on this machine"),
            ("hooks", "add the hooks"),
            ("skill", "add the skill"),
        )
    ),
    Flag(name="--undo", type="boolean", help="take back what a start of this folder did"),
)


def _exec(help: str) -> Flag:
    return Flag(name="--exec", type="string", help=help)


_KIT = Flag(name="--kit", type="string", help="a folder that contract export made")
_JUDGED = (
    Flag(name="--only", type="string", help="rules or areas, with commas, such as ids,streams"),
    Flag(name="--junit", type="boolean", help="print JUnit XML, whatever the format"),
    Flag(
        name="--watch",
        type="boolean",
        help="judge again whenever a file that --exec names, or one beside it, changes",
    ),
    _KIT,
)

OWN_COMMANDS = {
    command.name: command
    for command in (
        Command(
            name="call",
            usage="METHOD [JSON | KEY=VALUE …] [-]",
            summary="Send one request to any method.",
            examples=(
                'kbproc call search query="install git" limit=3',
                """kbproc call doc.list '{"limit": 5}'""",
                'echo \'{"slug": "handbook"}\' | kbproc call kb.create -',
            ),
            takes=tuple(flag.name for flag in GLOBAL_FLAGS),
        ),
        Command(
            name="start",
            usage="[FOLDER] [FLAGS] [--yes]",
            summary="Read a folder, connect the agents, and show the first answers.",
            examples=(
                "kbproc start",
                "kbproc start ~/notes --no-chats --no-hooks",
                "kbproc start --undo",
            ),
            flags=_START_FLAGS,
            takes=("--store", "--kb", "--profile", "--yes", "--dry-run"),
        ),
        Command(
            name="serve",
            usage="[FLAGS]",
            summary="Answer JSON-RPC requests on stdin and stdout.",
            examples=("kbproc serve --root docs --scopes doc:read,kb:read",),
            flags=_SERVE_FLAGS,
            takes=_AROUND,
        ),
        Command(
            name="mcp",
            usage="[FLAGS] | install CLIENT [FLAGS] [--yes] | uninstall CLIENT [--yes]",
            summary="Offer the methods as MCP tools.",
            examples=("kbproc mcp --tools minimal", "kbproc mcp install claude-code"),
            flags=_MCP_FLAGS,
            takes=(*_AROUND, "--yes"),
        ),
        Command(
            name="hook",
            usage="install CLIENT [FLAGS] [--yes] | remove CLIENT [--yes] | report | forget | "
            "EVENT",
            summary="Bring what the store knows into an agent's prompts.",
            examples=(
                "kbproc hook install claude-code",
                "kbproc hook remove claude-code",
                "kbproc hook report",
            ),
            flags=_HOOK_FLAGS,
            takes=("--store", "--kb", "--profile", "--agent", "--yes"),
        ),
        Command(
            name="skills install",
            usage="[CLIENT] [--yes]",
            summary="Write the skill that tells agents when to use kbproc.",
            examples=("kbproc skills install", "kbproc skills install claude-code"),
            takes=("--profile", "--yes"),
        ),
        Command(
            name="open",
            usage="[FLAGS]",
            summary="Open a page to look into the store, correct it and approve plans.",
            examples=("kbproc open", "kbproc open --read-only --port 8700"),
            flags=_OPEN_FLAGS,
            takes=_AROUND,
        ),
        Command(
            name="watch follow",
            usage="[FLAGS]",
            summary="Watch the folders until Ctrl-C, and show what changes.",
            examples=("kbproc watch follow",),
            takes=("--format", "--store", "--profile", "--log-level"),
        ),
        Command(
            name="work",
            usage="SERVER… --stream NAME [FLAGS]",
            summary="Embed and parse for a cluster.",
            examples=("kbproc work nats://10.0.0.1:4222 --stream team",),
            flags=(
                Flag(name="--stream", type="string", help="what the nodes call their store"),
                Flag(name="--model", type="string", help="a name or a folder, as the nodes have"),
                Flag(name="--parallel", type="integer", help="jobs at a time", default=2),
                Flag(
                    name="--credentials",
                    type="string",
                    help="a .creds file, or one with NAME:PASSWORD",
                ),
            ),
            takes=("--profile",),
        ),
        Command(
            name="profile save",
            usage="NAME FLAGS",
            summary="Keep the settings that the flags name.",
            examples=(
                "kbproc profile save work --store ~/work/kb --kb handbook",
                "kbproc --profile work search 'install git'",
            ),
            takes=(*_CHANGES, *_AROUND),
        ),
        Command(
            name="profile use",
            usage="NAME | --none",
            summary="Choose the profile for when none is named.",
            examples=("kbproc profile use work", "kbproc profile use --none"),
            flags=(Flag(name="--none", type="boolean", help="choose no profile any more"),),
            takes=_CHANGES,
        ),
        Command(
            name="profile list",
            usage="",
            summary="List the profiles.",
            examples=("kbproc profile list",),
            takes=("--jq", "--profile"),
        ),
        Command(
            name="profile show",
            usage="[NAME]",
            summary="Show a profile, or what is in effect and why.",
            examples=("kbproc profile show work", "kbproc profile show"),
            takes=("--jq", *_AROUND),
        ),
        Command(
            name="profile delete",
            usage="NAME",
            summary="Delete a profile; its store stays.",
            examples=("kbproc profile delete work",),
            takes=_CHANGES,
        ),
        Command(
            name="link",
            usage="[FOLDER] [FLAGS]",
            summary="Bind a folder to a store and a knowledge base.",
            examples=(
                "kbproc link --store ~/work/kb --kb handbook",
                "kbproc link ~/projects/site --store ~/work/kb --kb site --create",
                "kbproc link --trust",
            ),
            flags=(
                Flag(name="--create", type="boolean", help="make store and knowledge base, too"),
                Flag(
                    name="--trust",
                    type="boolean",
                    help="use the link that is there, in this folder or above it, as it is now",
                    mutually_exclusive=["--create", "--kb"],
                ),
            ),
            takes=(*_CHANGES, "--store", "--kb"),
        ),
        Command(
            name="unlink",
            usage="[FOLDER]",
            summary="Take a folder's link away.",
            examples=("kbproc unlink ~/projects/site",),
            takes=_CHANGES,
        ),
        Command(
            name="eval",
            usage="DIR [FLAGS]",
            summary="Measure the quality of searches in a collection.",
            examples=(
                "kbproc eval ~/collections/handbook",
                "kbproc eval ~/collections/handbook --compare fusion=rrf",
                "kbproc eval longmemeval_s.json --questions 50",
            ),
            flags=(
                Flag(
                    name="--compare",
                    type="string",
                    help="settings of search to set beside mode hybrid, such as fusion=rrf",
                ),
                Flag(name="--questions", type="integer", help="only the first N", minimum=1),
                Flag(
                    name="--model",
                    type="string",
                    help="embedding model, a name or a folder as for model use; none: words alone",
                ),
            ),
            takes=("--jq", "--profile"),
        ),
        Command(
            name="contract check",
            usage='--exec "CMD …" [FLAGS]',
            summary="Judge an implementation of the wire, rule by rule.",
            examples=(
                'kbproc contract check --exec "kbproc serve --store {store}"',
                'kbproc contract check --exec "./my-server" --only ids,streams',
                'kbproc contract check --exec "./my-server" --profile core,log',
                'kbproc contract check --exec "./my-server" --conversation documents',
            ),
            flags=(
                _exec("what serves; {store} is a new folder, else KBPROC_STORE names it"),
                Flag(
                    name="--patience",
                    type="integer",
                    help="seconds to wait where no rule sets a limit",
                    default=30,
                    minimum=1,
                ),
                Flag(
                    name="--profile",
                    type="string",
                    help="parts of the wire, with commas: core, log, search, agents, answers; all "
                    "that init names if left out",
                ),
                Flag(
                    name="--conversation",
                    type="string",
                    help="hold one conversation, and show it beside kbproc's",
                ),
                *_JUDGED,
            ),
        ),
        Command(
            name="contract client",
            usage='--exec "CMD …" [FLAGS]',
            summary="Judge a client of the wire.",
            examples=('kbproc contract client --exec "./my-driver"',),
            flags=(
                _exec("what takes tasks; {server} is the server to start, else KBPROC_SERVER"),
                *_JUDGED,
            ),
        ),
        Command(
            name="contract requirements",
            usage="[ID | AREA …]",
            summary="List the rules that are judged.",
            examples=("kbproc contract requirements writes",),
            flags=(_KIT,),
        ),
        Command(
            name="contract export",
            usage="DIR",
            summary="Write the contract kit to a folder.",
            examples=("kbproc contract export contract-kit",),
            flags=(_KIT,),
        ),
        Command(
            name="docs",
            usage="[PAGE[#SECTION]]",
            summary="Show a page or a section of the docs.",
            examples=(
                "kbproc docs",
                "kbproc docs search",
                "kbproc docs errors#store.locked",
            ),
            takes=("--jq", "--profile"),
        ),
        Command(
            name="exit-codes",
            usage="",
            summary="List the exit codes and their errors.",
            examples=("kbproc exit-codes",),
            takes=("--jq", "--profile"),
        ),
        Command(
            name="completion",
            usage="bash|zsh|fish",
            summary="Print a completion script for a shell.",
            examples=("source <(kbproc completion bash)",),
        ),
        Command(
            name="help",
            usage="[COMMAND]",
            summary="Show a command's help.",
            examples=("kbproc help doc list",),
        ),
    )
}
CONTRACT_COMMANDS = tuple(name for name in OWN_COMMANDS if name.startswith("contract "))
# Commands for profiles and links.
PROFILE_COMMANDS = (
    *(name for name in OWN_COMMANDS if name.startswith("profile ")),
    "link",
    "unlink",
)


def own_command(words: list[str]) -> tuple[Command | None, list[str]]:
    """Returns the shell's own command that the first words name, and the words after them."""
    for count in (2, 1):
        command = OWN_COMMANDS.get(" ".join(words[:count]))
        if command is not None:
            return command, words[count:]
    return None, words


def own_commands_of(noun: str) -> list[Command]:
    """Returns the shell's own commands of a noun, such as `profile save`."""
    return [command for name, command in OWN_COMMANDS.items() if name.startswith(f"{noun} ")]


# A newcomer's word → the page about it, and the commands that do it.
_MEANT: dict[str, tuple[str, ...]] = {
    "undo": ("undo", "doc restore", "events revert"),
    "forget": ("undo", "store purge", "doc delete"),
    "erase": ("undo", "store purge"),
    "remember": ("knowledge", "knowledge store", "hook install"),
    "share": ("moving", "store export"),
}


def nouns(registry: Names[Described]) -> set[str]:
    """Returns the first words of the commands that have two words."""
    dotted = {name.partition(".")[0] for name in registry.methods if "." in name}
    return dotted | {name.partition(" ")[0] for name in OWN_COMMANDS if " " in name}


def methods_by_noun(registry: Names[Described]) -> dict[str, list[Described]]:
    """Returns noun → its methods; methods of one word are general."""
    groups: dict[str, list[Described]] = {_GENERAL: []}
    for method in registry.methods.values():
        noun, dot, _ = method.name.partition(".")
        groups.setdefault(noun if dot else _GENERAL, []).append(method)
    return groups


def find_command(registry: Names[Described], words: list[str]) -> tuple[Described, list[str]]:
    """Returns the method that the first words name, and the words after them.

    Raises input.unknown_method with the nearest commands.
    """
    name = ".".join(words[:2])
    spaced = registry.methods.get(registry.by_alias(name) or name)
    if spaced is not None and "." not in words[0]:
        return spaced, words[2:]
    if (alone := registry.methods.get(words[0])) is not None:
        return alone, words[1:]
    if words[0] in registry.aliases:
        return registry.methods[registry.aliases[words[0]]], words[1:]
    raise _unknown_command(registry, words, list(registry.aliases))


def _unknown_command(
    registry: Names[Described], words: list[str], aliases: list[str]
) -> KbprocError:
    from kbproc.methods.calls.registry import ALIASES

    all_nouns = nouns(registry)
    if words[0] in all_nouns:
        return _unknown_verb(registry, words[0], words[1:2])
    commands = [name.replace(".", " ") for name in registry.methods]
    verb = ALIASES.get(words[0], words[0])
    matches = sorted(name for name in (*commands, *OWN_COMMANDS) if name.endswith(f" {verb}"))
    if matches:
        return _verb_alone(words[0], sorted(matches, key=lambda name: not name.startswith("doc ")))
    if words[0] in _MEANT:
        return _meant(words[0])
    every = {*commands, *aliases, *OWN_COMMANDS, *all_nouns}
    like = closest(words[0], every)
    return KbprocError(
        "input.unknown_method",
        f"There is no command {words[0]!r}.",
        field=words[0],
        valid_values=ranked(words[0], every),
        hint=f"{did_you_mean(like and f'kbproc {like}')}See kbproc --help.",
    )


def _meant(typed: str) -> KbprocError:
    """Returns the error for a newcomer's word, with the commands that do what it says."""
    page, *commands = _MEANT[typed]
    named = " or ".join(f"kbproc {command}" for command in commands)
    return KbprocError(
        "input.unknown_method",
        f"There is no command {typed!r}.",
        field=typed,
        valid_values=commands,
        hint=f"Did you mean {named}? kbproc docs {page} shows how.",
    )


def _verb_alone(typed: str, commands: list[str]) -> KbprocError:
    """Returns the error for a verb without a noun. `commands`: candidates, the likeliest first."""
    question = "Did you mean" if len(commands) == 1 else "A noun is missing: do you mean"
    return KbprocError(
        "input.unknown_method",
        f"There is no command {typed!r}.",
        field=typed,
        valid_values=commands,
        hint=f"{question} kbproc {commands[0]}? See kbproc --help.",
    )


def _unknown_verb(registry: Names[Described], noun: str, following: list[str]) -> KbprocError:
    names = (name.replace(".", " ") for name in (*registry.methods, *OWN_COMMANDS))
    verbs = {name.removeprefix(f"{noun} "): name for name in names if name.startswith(f"{noun} ")}
    typed = next((word for word in following if not word.startswith("-")), None)
    like = None if typed is None else closest(typed, verbs)
    near = sorted(verbs) if typed is None else ranked(typed, verbs)
    return KbprocError(
        "input.unknown_method",
        f"{noun} needs a word more."
        if typed is None
        else f"There is no command {f'{noun} {typed}'!r}.",
        field=noun if typed is None else f"{noun} {typed}",
        valid_values=[verbs[name] for name in near],
        hint=f"{did_you_mean(like and f'kbproc {verbs[like]}')}See kbproc {noun} --help.",
    )
