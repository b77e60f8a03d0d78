"""The table of clients: a row says where a coding agent or an editor keeps its files.

In a row `PROJECT/…`, `CONFIG/…` and `DATA/…` lie in the project and in the user's folders by the
XDG base directory specification, `~/…` in the home, and all others in the client's own folder.
Sources of the hooks' shapes: surfaces/hooks/protocol.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kbproc.base.host import environment, user_folder
from kbproc.base.paths import absolute, working_folder

TOOL = "tool"  # our event when a tool is used


class Servers(Struct, frozen=True, kw_only=True):
    """The settings that name MCP servers.

    `member`: holds the servers by name. `constants`: members of every entry. `is_one_list`: the
    command and its arguments are one list. `env`: the member of an entry that holds variables.
    `variable`: names another file. `other`: the file that is used where it alone exists.
    """

    file: str
    member: str = "mcpServers"
    constants: Mapping[str, Any] = {}
    is_one_list: bool = False
    env: str = "env"
    variable: str | None = None
    other: str | None = None
    next_step: str | None = None

    @property
    def is_project(self) -> bool:
        """Returns whether the settings come with the project to other machines."""
        return self.file.startswith("PROJECT/")

    def entry(self, command: list[str]) -> dict[str, Any]:
        if self.is_one_list:
            return {**self.constants, "command": command}
        return {**self.constants, "command": command[0], "args": command[1:]}


class Hooks(Struct, frozen=True, kw_only=True):
    """The settings that name hooks. `events`: ours → the client's name for it.

    `tools`: the client's events when a tool is used → which tools, as its matcher; "" for all.
    `constants`: members of every handler. `second`: what a timeout of one second is. `is_flat`: the
    handlers stand in the event's list themselves, not in groups with a matcher. `first`: members
    that the settings must have. `other`: the file that is used where a person keeps hooks in it.
    """

    file: str
    events: Mapping[str, str]
    tools: Mapping[str, str] = {}
    constants: Mapping[str, Any] = {}
    second: int = 1
    is_flat: bool = False
    first: Mapping[str, Any] = {}
    other: str | None = None
    next_step: str | None = None

    @property
    def names(self) -> list[str]:
        """Returns the client's names of all events."""
        return [*self.events.values(), *self.tools]

    def places(self, event: str) -> Mapping[str, str]:
        """Returns the client's events of ours, each with the matcher of its group."""
        return self.tools if event == TOOL else {self.events[event]: ""}

    def group(self, handler: dict[str, Any], matcher: str) -> dict[str, Any]:
        """Returns what stands in an event's list for a handler."""
        condition = {"matcher": matcher} if matcher else {}
        return {**handler, **condition} if self.is_flat else {**condition, "hooks": [handler]}

    def handler(self, command: str, seconds: int) -> dict[str, Any]:
        """Returns what stands in the settings for a command that may take some seconds."""
        return {**self.constants, "command": command, "timeout": seconds * self.second}


class Client(Struct, frozen=True, kw_only=True):
    """A program that kbproc works with. `variable`: names another folder than `folder`.

    `skills`: a person's own. `logs`: of sessions; `logs_name`: the client's name in chats.add.
    """

    name: str
    title: str
    folder: str = "~"
    variable: str | None = None
    servers: Servers | None = None
    hooks: Hooks | None = None
    skills: str | None = None
    logs: tuple[str, ...] = ()
    logs_name: str = ""

    def path(self, place: str, at: Places) -> Path:
        """Returns the path of one of the client's places.

        Raises input.invalid_params for a variable that holds no path.
        """
        root, _, rest = place.partition("/")
        roots = {"PROJECT": at.project, "CONFIG": at.settings, "DATA": at.data, "~": at.home}
        if root in roots:
            return roots[root] / rest
        own = self.variable and at.variables.get(self.variable)
        folder = absolute(own, field=self.variable or "") if own else self.path(self.folder, at)
        return folder / place

    def is_here(self, at: Places) -> bool:
        """Returns whether the client keeps files on this machine, or in the project."""
        rows = (self.hooks, self.servers)
        file = next((row.file for row in rows if row is not None), "")
        folder = self.path(file, at).parent if self.folder == "~" else self.path("", at)
        return folder != at.project and folder.is_dir()


class Places(Struct, frozen=True, kw_only=True):
    """The user's folders and the project. `variables`: the environment."""

    home: Path
    settings: Path
    data: Path
    project: Path
    variables: Mapping[str, str] = {}

    @property
    def records(self) -> Path:
        """Returns kbproc's own folder of settings."""
        return self.settings / "kbproc"


def places_here(env: Mapping[str, str] | None = None) -> Places:
    """Returns this process's places. Raises input.invalid_params for a variable without a path."""
    env = environment() if env is None else env
    return Places(
        home=absolute(env.get("HOME") or str(Path.home()), field="HOME"),
        settings=user_folder("CONFIG", env),
        data=user_folder("DATA", env),
        project=working_folder(),
        variables=env,
    )


_WRITES = "Edit|MultiEdit|Write|NotebookEdit|Bash"  # Claude Code's tools that are no reads
SHARED_SKILLS = "~/.agents/skills"  # several clients read it
CLIENTS = (
    Client(
        name="claude-code",
        title="Claude Code",
        folder="~/.claude",
        variable="CLAUDE_CONFIG_DIR",
        servers=Servers(
            file="PROJECT/.mcp.json",
            constants={"type": "stdio"},
            next_step="Claude Code asks you to approve the server when it next starts in this "
            "project. Without a person (claude -p) it starts only the servers that "
            '.claude/settings.local.json names: {"enabledMcpjsonServers": ["kbproc"]}.',
        ),
        hooks=Hooks(
            file="settings.json",
            constants={"type": "command"},
            events={
                "session-start": "SessionStart",
                "prompt": "UserPromptSubmit",
                "pre-compact": "PreCompact",
                "session-end": "SessionEnd",
            },
            tools={"PreToolUse": _WRITES, "PostToolUseFailure": _WRITES},
        ),
        skills="skills",
        logs=("projects",),
    ),
    Client(
        name="codex",
        title="Codex",
        folder="~/.codex",
        variable="CODEX_HOME",
        servers=Servers(
            file="config.toml",
            member="mcp_servers",
            next_step="Codex leaves out the tools of a server that has not answered within a "
            "second. On a slow machine put this before the first table of its config.toml: "
            "mcp_optional_startup_grace_ms = 10000.",
        ),
        hooks=Hooks(
            file="config.toml",
            other="hooks.json",  # Codex warns of hooks in two files
            constants={"type": "command"},
            events={
                "session-start": "SessionStart",
                "prompt": "UserPromptSubmit",
                "pre-compact": "PreCompact",
                "session-end": "Stop",
            },
            tools={"PreToolUse": "", "PostToolUse": ""},
            next_step="Codex runs new hooks only once you have trusted them: /hooks lists them.",
        ),
        skills=SHARED_SKILLS,
        logs=("sessions", "archived_sessions"),
    ),
    Client(
        name="cursor",
        title="Cursor",
        folder="~/.cursor",
        servers=Servers(
            file="mcp.json",
            next_step="Cursor lists the server in its settings under MCP; switch it on there.",
        ),
        hooks=Hooks(
            file="hooks.json",
            events={
                "session-start": "sessionStart",
                "prompt": "beforeSubmitPrompt",
                "pre-compact": "preCompact",
                "session-end": "sessionEnd",
            },
            tools=dict.fromkeys(("preToolUse", "postToolUseFailure"), "^(Shell|Write)$"),
            is_flat=True,
            first={"version": 1},
        ),
        skills="skills",
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        variable="GEMINI_CLI_HOME",
        servers=Servers(
            file=".gemini/settings.json",
            next_step="Where trusted folders are switched on, Gemini CLI starts the server only "
            "in folders that you trust: /permissions.",
        ),
        hooks=Hooks(
            file=".gemini/settings.json",
            events={
                "session-start": "SessionStart",
                "prompt": "BeforeAgent",
                "pre-compact": "PreCompress",
                "session-end": "SessionEnd",
            },
            tools={"AfterTool": "replace|write_file|run_shell_command"},
            constants={"type": "command", "name": "kbproc"},
            second=1000,
        ),
        skills=".gemini/skills",
        logs=(".gemini/tmp",),
        logs_name="gemini-cli",
    ),
    Client(
        name="opencode",
        title="opencode",
        folder="CONFIG/opencode",
        servers=Servers(
            file="opencode.json",
            other="opencode.jsonc",
            variable="OPENCODE_CONFIG",
            member="mcp",
            constants={"type": "local"},
            is_one_list=True,
            env="environment",
        ),
        skills="skills",
        logs=("DATA/opencode/opencode.db",),
    ),
    Client(
        name="pi",
        title="pi",
        folder="~/.pi/agent",
        variable="PI_CODING_AGENT_DIR",
        logs=("sessions",),
    ),
    Client(
        name="qwen",
        title="Qwen Code",
        folder="~/.qwen",
        variable="QWEN_HOME",
        servers=Servers(file="settings.json"),
    ),
    Client(
        name="vscode",
        title="VS Code",
        servers=Servers(
            file="PROJECT/.vscode/mcp.json",
            member="servers",
            constants={"type": "stdio"},
            next_step="VS Code asks you to trust the server when it first starts it.",
        ),
    ),
    Client(
        name="zed",
        title="Zed",
        folder="CONFIG/zed",
        servers=Servers(file="settings.json", member="context_servers"),
    ),
)
BY_NAME = {client.name: client for client in CLIENTS}
SERVERS = {client.name: client.servers for client in CLIENTS if client.servers is not None}
HOOKS = {client.name: client.hooks for client in CLIENTS if client.hooks is not None}
SKILLS = {client.name: client.skills for client in CLIENTS if client.skills is not None}
LOGS = {client.logs_name or client.name: client for client in CLIENTS if client.logs}
