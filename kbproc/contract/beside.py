"""Shows a conversation with an implementation beside the one with kbproc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_OURS, _THEIRS = "kbproc < ", "yours  < "


def beside(model: Iterable[str], transcript: Iterable[str]) -> str:
    """Returns each line that was sent, what came of it from kbproc, and what came of it here.

    Answers may come in another order than kbproc's, and after a later line.
    """
    ours, lines = list(_exchanges(model)), []
    for number, (sent, came) in enumerate(_exchanges(transcript)):
        lines.append(sent)
        lines += [f"{_OURS}{line}" for line in (ours[number][1] if number < len(ours) else ())]
        lines += [f"{_THEIRS}{line}" for line in came]
    return "".join(f"{line}\n" for line in lines if line)


def _exchanges(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each line that was sent, or "" for the beginning, and what came before the next."""
    sent, came = "", list[str]()
    for line in lines:
        if line.startswith("> "):
            yield sent, came
            sent, came = line, []
        else:
            came.append(line.removeprefix("< "))
    yield sent, came
