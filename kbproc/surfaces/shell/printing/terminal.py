"""Prints answers, remarks and progress bars for a person at a terminal."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, TextIO

from kbproc.base.wording import duration_in_words
from kbproc.methods.calls.method import Method
from kbproc.surfaces.shell.printing import tables
from kbproc.surfaces.shell.printing.formats import Jq, Output, write

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_WIDTH, _ENDING = 48, 24


def shortened(message: str) -> str:
    """Returns the beginning and the end of a message, because the end shows a file's progress."""
    if len(message) <= _WIDTH:
        return message
    return f"{message[: _WIDTH - _ENDING - 1]}…{message[-_ENDING:]}"


class Text(Output):
    """The text format: answers on stdout; progress, remarks and errors on stderr.

    A warning may come as a line of the log, as an event, as a notice and within the data. It
    is printed only once.
    """

    for_people = True

    def __init__(self, out: TextIO, err: TextIO, jq: Jq | None = None, *, color: bool) -> None:
        super().__init__(out, err, jq)
        self._color = color
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._endless: set[str] = set()  # stages without a known total
        self._printed: set[str] = set()  # messages
        self._lists_failures = False  # true once an answer has listed its failures
        self._in_prose = False  # true while an answer's line has not ended

    def _print_result(
        self, method: Method | None, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        self.settled()
        width = shutil.get_terminal_size().columns
        color = self._color and self.out.isatty()
        result = tables.without(result, self._printed)
        if self._in_prose:  # because the prose is printed already; its sources are not
            self._end_prose()
            result = {**result, "data": {**result["data"], "text": ""}}
            if result["data"]["references"] or result["data"]["see_also"]:
                write(self.out, "\n")
        text = tables.result_text(
            method, params, result, width=width, color=color, details=self.details
        )
        write(self.out, text)
        self._lists_failures = tables.is_report(method, params, result)
        for line in tables.remarks(result):
            write(self.err, line + "\n")

    def event(self, event: dict[str, Any]) -> None:
        if event["type"] == "progress":
            self.progress(
                *(event["stage"], event["current"], event["total"], event["message"]),
                eta_ms=event["eta_ms"],
            )
        elif event["type"] == "warning":
            self._end_prose()
            self.note(event["message"])
        elif event["type"] == "answer":
            self._prose(event.get("text", "") + event.get("delta", ""))
        else:
            super().event(event)

    def _prose(self, text: str) -> None:
        """Prints a part of an answer as it comes."""
        if self.jq is None and text:
            self.settled()
            self._in_prose = True
            write(self.out, tables.plain(text))

    def _end_prose(self) -> None:
        if self._in_prose:
            write(self.out, "\n")
            self._in_prose = False

    def item(self, item: dict[str, Any]) -> None:
        if self.jq is None:
            assert self.follows is not None  # noqa: S101
            for line in tables.item_lines(self.follows, item):
                write(self.out, line + "\n")
        else:
            super().item(item)

    def error(self, data: dict[str, Any]) -> None:
        self.settled()
        self._end_prose()
        if self._lists_failures and data["type"] == "operation.partial":
            data = {**data, "detail": {}, "hint": ""}
        for line in tables.error_lines(data):
            write(self.err, line + "\n")

    def plan(self, plan: dict[str, Any]) -> None:
        self.settled()
        for line in tables.plan_lines(plan):
            write(self.err, line + "\n")

    def note(self, message: str) -> None:
        self.logged(f"Note: {message}", message)

    def logged(self, line: str, message: str) -> None:
        if message in self._printed:
            return
        self._printed.add(message)
        self.settled()
        write(self.err, tables.plain(line) + "\n")

    def progress(
        self,
        stage: str,
        current: int,
        total: int | None,
        message: str = "",
        eta_ms: int | None = None,
    ) -> None:
        if not (self._color and self.err.isatty()):  # because a bar needs escape sequences
            return
        bars = self._bars or self._start_bars()
        if stage not in self._tasks:
            for task in self._endless:
                bars.remove_task(self._tasks.pop(task))
            self._endless = {stage} if total is None else set()
            self._tasks[stage] = bars.add_task(stage, total=total, message="", count="", left="")
        bars.update(
            self._tasks[stage],
            completed=current,
            total=total,
            message=shortened(tables.plain(message)),
            count="" if total is None else f"{current}/{total}",
            left=f"{duration_in_words(eta_ms / 1000)} left" if eta_ms else "",
        )

    def settled(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars, self._tasks, self._endless = None, {}, set()

    def _start_bars(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.fields[message]}", markup=False),
            console=Console(file=self.err, highlight=False),
            transient=True,
        )
        self._bars.start()
        return self._bars
