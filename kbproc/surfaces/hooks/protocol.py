"""Reads a client's event from stdin, and writes the answer that the client expects.

Sources of the shapes:
- Claude Code 2.1.332: the schemas in its program (npm @anthropic-ai/claude-code-linux-x64), and
  https://code.claude.com/docs/en/hooks.
- Codex 0.171.0: codex-rs/hooks/schema/generated/*.schema.json of https://github.com/openai/codex,
  which are in its program, too. Of a command its PostToolUse has the output alone.
- Gemini CLI 0.61.0: bundle/docs/hooks/reference.md in npm @google/gemini-cli. Its BeforeTool takes
  no context, its AfterTool does; the exit code of a command stands in its text for the model.
- Cursor: the program in npm @cursor/sdk 1.0.32, and https://cursor.com/docs/hooks. The program
  lists the events whose `additional_context` it takes, which beforeSubmitPrompt is none of, and
  notes an empty answer as a failure.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE, without_halves

MOST_BYTES = 4 << 20  # an event may hold a pasted file
_MOST_NAME = 4096  # characters of a session's id or a folder

# Event → the clients' own names for it; the first is the one for an event without a name.
NAMES = {
    "session-start": ("SessionStart", "sessionStart"),
    "prompt": ("UserPromptSubmit", "BeforeAgent", "beforeSubmitPrompt"),
    "pre-compact": ("PreCompact", "PreCompress", "preCompact"),
    "session-end": ("SessionEnd", "Stop", "sessionEnd", "stop"),
    "tool": (
        *("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        "AfterTool",
        *("preToolUse", "postToolUseFailure"),
    ),
}
# Another event comes before them.
_ONLY_AFTER = frozenset({"PostToolUse", "PostToolUseFailure", "postToolUseFailure"})
# Sources of a session whose context has lost what it held.
AFRESH = frozenset({"clear", "compact"})
_FROM_PEOPLE = frozenset({None, "user", "sdk"})


class HookEvent(Struct, frozen=True, kw_only=True):
    """One event. `name`: the client's name for it. `folder`: where the agent works.

    `source`: what began the session or wrote the prompt; None where the client does not say.
    `transcript`: the file of the session's log. `tool_input`: the arguments of a tool, and `error`
    how it failed.
    """

    event: str
    name: str
    session: str | None = None
    folder: str | None = None
    prompt: str = ""
    source: str | None = None
    transcript: str | None = None
    tool_input: dict[str, Any] = {}
    error: str = ""

    @property
    def is_shown(self) -> bool:
        """Returns false where the client does not pass the answer on."""
        return self.name != "beforeSubmitPrompt"

    @property
    def is_from_person(self) -> bool:
        """Returns false for a prompt that the client itself wrote, such as a timer's."""
        return self.source in _FROM_PEOPLE


def read(event: str, data: bytes) -> HookEvent:
    """Returns the event in the client's JSON. Raises input.invalid_params."""
    if event not in NAMES:
        raise _invalid(f"There is no event {event[:40]!r}; there are {', '.join(NAMES)}.")
    if len(data) > MOST_BYTES:
        raise _invalid(f"The event is over {MOST_BYTES >> 20} MiB.")
    try:
        members = msgspec.json.decode(without_halves(data), type=dict[str, Any])
    except NOT_READABLE as error:
        raise _invalid(f"The event is no JSON object: {error}.") from None
    name = _text(members, "hook_event_name") or NAMES[event][0]
    if name not in NAMES[event]:
        raise _invalid(f"{event} got the event {name[:40]!r}.")
    return HookEvent(
        event=event,
        name=name,
        session=_text(members, "session_id") or _text(members, "conversation_id"),
        folder=_text(members, "cwd") or _root(members),
        prompt=_text(members, "prompt", most=MOST_BYTES) or "",
        source=_text(members, "source"),
        transcript=_text(members, "transcript_path"),
        **(_of_tool(name, members) if event == "tool" else {}),
    )


def _of_tool(name: str, members: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of an event about a tool; none for one that is done and did not fail."""
    from kbproc.surfaces.hooks.act import error_of  # other events need none of its patterns

    error = error_of(members)
    tool_input = members.get("tool_input")
    if not isinstance(tool_input, dict) or (name in _ONLY_AFTER and not error):
        return {}
    return {"tool_input": tool_input, "error": error}


def _invalid(message: str) -> KbprocError:
    return KbprocError("input.invalid_params", message)


def _text(members: dict[str, Any], name: str, most: int = _MOST_NAME) -> str | None:
    value = members.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > most or (most == _MOST_NAME and "\0" in value):
        raise _invalid(f"{name} of the event is no text of at most {most} characters.")
    return value


def _root(members: dict[str, Any]) -> str | None:
    """Returns the first root of Cursor's workspace, which has no `cwd`."""
    roots = members.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else None
    return _text({"workspace_roots": first}, "workspace_roots")


def delayed(event: HookEvent, for_person: str, for_agent: str) -> str:
    """Returns the client's JSON for a search that did not end in time; it is none of Cursor's."""
    output = {"hookEventName": event.name, "additionalContext": for_agent}
    return msgspec.json.encode({"systemMessage": for_person, "hookSpecificOutput": output}).decode()


def written(event: HookEvent, context: str) -> bytes:
    """Returns the client's JSON for this context; nothing for an empty one, but for Cursor."""
    if _is_cursor(event):
        return msgspec.json.encode({"additional_context": context} if context else {}) + b"\n"
    if not context:
        return b""
    output = {"hookEventName": event.name, "additionalContext": context}
    return msgspec.json.encode({"hookSpecificOutput": output}) + b"\n"


def _is_cursor(event: HookEvent) -> bool:
    return event.name[0].islower()  # no other client's names begin so
