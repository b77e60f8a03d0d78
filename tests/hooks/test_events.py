"""Hooks read events whose text the client's program has damaged."""

from __future__ import annotations

from kbproc.surfaces.hooks.protocol import read


def test_half_an_emoji_does_not_silence_a_hook() -> None:
    """A client that cuts a prompt within an emoji writes an escape that no decoder takes."""
    event = read("prompt", b'{"prompt": "how do we deploy \\ud83d", "cwd": "/work\\ude80"}')
    assert (event.prompt, event.folder) == ("how do we deploy \ufffd", "/work\ufffd")
