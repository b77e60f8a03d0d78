"""Names of the clients whose settings are known.

Owns: the names, so that flags and completion can list them and import nothing else.
Refuses to know: the settings (clients.py).
"""

from __future__ import annotations

NAMES = ("claude-code", "codex", "cursor", "gemini", "opencode", "qwen", "vscode", "zed")
