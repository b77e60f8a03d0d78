"""Says when a hook ends without output, by its flags; a hook that records has more time."""

from __future__ import annotations

DEADLINE_MS = 1000
LEAST_DEADLINE_MS, MOST_DEADLINE_MS = 200, 60_000
TOOL_DEADLINE_MS = 300  # an agent waits before each of its acts
RECORD, RECORD_DEADLINE_MS = "--record", 30_000
COUNT = "--count"
RECORDED = ("pre-compact", "session-end")  # events at which a session is recorded


def deadline_of(argv: list[str]) -> int:
    """Returns the flag's milliseconds; the default for one that is no valid number."""
    for flag, following in zip(argv, [*argv[1:], ""], strict=True):
        name, _, value = flag.partition("=")
        text = value or following
        if name == "--deadline-ms" and is_deadline(text):
            return int(text)
    if argv[1:2] == ["tool"]:
        return TOOL_DEADLINE_MS
    reads_log = RECORD in argv or (COUNT in argv and argv[1:2] == ["session-end"])
    return RECORD_DEADLINE_MS if reads_log else DEADLINE_MS


def is_deadline(text: str) -> bool:
    """Returns whether the text is a deadline that a hook can have, in milliseconds."""
    return text.isdecimal() and LEAST_DEADLINE_MS <= int(text) <= MOST_DEADLINE_MS
