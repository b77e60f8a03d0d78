"""A cluster node as a process that many threads use and that tests may kill at any time."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.kit.patience import PATIENCE
from tests.kit.talk import Process, as_bytes, request

Answer = dict[str, Any] | None


class Node:
    """A store's folder with its settings, and the kbproc process that has it open."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self._ids = itertools.count(1)
        self._waiting: dict[int, SimpleQueue[Answer]] = {}
        self._changing = threading.Lock()
        self.process = self._start()

    def _start(self) -> Process:
        process = Process(self.store, cwd=self.store.parent, model="none", real="1")
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return process

    def _read(self, process: Process) -> None:
        for line in process.stdout:
            message = json.loads(line)
            if "id" in message:
                with self._changing:
                    answers = self._waiting.pop(message["id"], None)
                if answers is not None:
                    answers.put(message)
        with self._changing:
            waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            answers.put(None)

    def ask(self, method: str, **params: Any) -> Answer:
        """Returns the answer; None if the process died before it answered."""
        id, answers = next(self._ids), SimpleQueue[Answer]()
        with self._changing:
            self._waiting[id] = answers
            try:
                self.process.send(as_bytes(request(id, method, **params)))
            except (BrokenPipeError, ValueError):  # the process is dead, or its pipe closed
                self._waiting.pop(id)
                return None
        return answers.get(timeout=PATIENCE)

    def told(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert answer is not None and "result" in answer, answer
        return answer["result"]["data"]

    def restart(self) -> None:
        """Kills the process with kill -9 and starts a new one."""
        self.kill()
        self.process = self._start()

    def kill(self) -> None:
        self.process.process.kill()
        self._reader.join(PATIENCE)
        self.process.stop()

    def close(self) -> None:
        self.process.stdin.close()
        self._reader.join(PATIENCE)
        self.process.stop()
