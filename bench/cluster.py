"""`python -m bench.cluster`: measures a shared log; writes its table into docs/cluster.md.

Three servers sync always and hold three copies of each record. The figures go into
bench/cluster.json and that page's blocks. `--check` compares. `--quick` measures a tenth, and
writes no file. All servers and nodes share this machine's cores and disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.__main__ import machine
from bench.measure import ROOT, Result, aligned, table
from kbproc.base.errors import KbprocError
from kbproc.base.pipes import leave
from kbproc.engine.cluster.jetstream.log import JetStreamLog
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import MOST_IN_A_BATCH
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import RecordDraft
from tests.kit.nats import Server, Servers
from tests.kit.patience import until
from tools.generate.outputs import with_blocks

PAGE = ROOT / "docs" / "cluster.md"
RESULTS = Path(__file__).parent / "cluster.json"
_ALONE = Path(__file__).parent / "results.json"
_GROWTH = RESULTS.with_name("large.json")
_REBUILT = "rebuild of views, 100,000 chunks"
_MEMORY_MIB, _NODES = 8 * 1024, 20
_BYTES = 1000  # a record's event: a document of a chunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.check:
        return int(page() != PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="kbproc-bench-") as folder:
        results = Bench(Path(folder), 10 if options.quick else 1).run()
    print(f"{machine()}\n\n{table(results)}")
    if not options.quick:
        data = {"machine": machine(), "legs": [result._asdict() for result in results]}
        RESULTS.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        PAGE.write_text(page(), encoding="utf-8")
    return int(any(result.ok is False for result in results))


def page() -> str:
    """Returns docs/cluster.md with the stored figures and their consequences."""
    data = json.loads(RESULTS.read_text(encoding="utf-8"))
    legs = table([Result(**leg) for leg in data["legs"]])
    figures = f"Three servers and all nodes on one machine: {data['machine']}\n\n{legs}"
    blocks = {"figures": figures, "further": further(_figures(RESULTS) | _figures(_ALONE))}
    return with_blocks(PAGE.read_text(encoding="utf-8"), blocks)


def _figures(path: Path) -> dict[str, float]:
    legs = json.loads(path.read_text(encoding="utf-8"))["legs"]
    return {leg["leg"].partition(" / ")[0]: leg["product"] for leg in legs}


def further(figures: dict[str, float]) -> str:
    """Returns the sizes that force each step beyond one store on several machines."""
    small, large = (_memory_at(chunks) for chunks in (100_000, 1_000_000))
    kib_a_chunk = (large - small) * 1024 / 900_000
    most = int((_MEMORY_MIB - small) * 1024 / kib_a_chunk)
    rate, folded = figures["a node joins at 100,000 records"], figures[_REBUILT] / 100_000
    join_s = 1 / rate + folded
    rows = [
        ["step", "what forces it", "measured", "so it is due at"],
        [
            "many stores, a stream each",
            "a stream takes one commit after the other",
            f"{figures['append, p50'] * 1e3:.1f} ms a commit; "
            f"{figures['batches of 1000 records']:,.0f} records/s in batches of 1,000",
            f"{_about(1 / figures['append, p50'])} single writes/s, or as many records in batches",
        ],
        [
            "views on object storage",
            "a node that joins reads all records and folds all views",
            f"{rate:,.0f} records/s read; {folded * 1e6:.0f} µs a chunk to fold",
            f"{_about(10 / join_s)} chunks for who may wait 10 s (a container); "
            f"{_about(600 / join_s)} for 10 minutes",
        ],
        [
            "a search tier",
            "each node holds the indexes of all chunks",
            f"{small:,.0f} MiB at 100,000 chunks, {large:,.0f} MiB at 1,000,000: "
            f"{kib_a_chunk:.1f} KiB a chunk",
            f"{_about(most)} chunks on nodes of 8 GiB; or {_NODES} nodes of 1,000,000 chunks, "
            f"which hold {_NODES * kib_a_chunk * 1e6 / 2**20:.0f} GiB in all",
        ],
    ]
    return aligned(rows)


def _memory_at(chunks: int) -> float:
    """Returns MiB after many searches, with the files that they load into memory."""
    sizes = json.loads(_GROWTH.read_text(encoding="utf-8"))["sizes"]
    return next(float(size["memory_mib"]) for size in sizes if size["chunks"] == chunks)


def _about(number: float) -> str:
    """Returns the number rounded to two digits."""
    return f"{int(float(f'{number:.1e}')):,}"


class Bench:
    """The measurements on three servers; `thin` divides all counts."""

    def __init__(self, folder: Path, thin: int) -> None:
        self._folder = folder
        self._thin = thin
        self._servers = Servers.make(folder / "nats", 3).start()

    def run(self) -> list[Result]:
        results: list[Result] = []
        try:
            for leg in (self._appends, self._batches, self._losses, self._join):
                for result in leg():
                    results.append(result)
                    print("  ".join(cell for cell in result.cells() if cell), flush=True)
        finally:
            self._servers.kill()
        return results

    def _open(self, name: str, settings: StreamSettings) -> JetStreamLog:
        log = JetStreamLog.open(self._folder / name)
        log.join(settings)
        return log

    def _appends(self) -> list[Result]:
        """Appends record by record, each acknowledged before the next one is sent."""
        alone = FileLog.open(self._folder / "alone")
        log = self._open("appends", self._servers.stream("appends"))
        times: dict[str, list[float]] = {"alone": [], "shared": []}
        for number in range(1000 // self._thin):
            for name, one in (("alone", alone), ("shared", log)):
                times[name].append(_took(one, [_draft(number)]))
        log.close()
        alone.close()
        shared, floor = sorted(times["shared"]), statistics.median(times["alone"])
        p95 = shared[int(len(shared) * 0.95)]
        return [
            Result("append, p50", statistics.median(shared), aim=0.004),
            Result("append, p95", p95),
            Result("append to a folder, p50", floor, note="one sync"),
        ]

    def _batches(self) -> list[Result]:
        """Appends batches of the greatest size that a server takes, and of a tenth."""
        log = self._open("batches", self._servers.stream("batches"))
        results = []
        for size, aim in ((MOST_IN_A_BATCH // 10, None), (MOST_IN_A_BATCH, 2000)):
            took, count = 0.0, max(2, 20 // self._thin)
            for _ in range(count):
                took += _took(log, [_draft(number) for number in range(size)])
            results.append(
                Result(f"batches of {size} records", size * count / took, aim=aim, unit="/s")
            )
        log.close()
        return results

    def _losses(self) -> list[Result]:
        """Measures from kill -9 of the leading server to the next acknowledgement."""
        settings = self._servers.stream("losses")
        log = self._open("losses", settings)
        _took(log, [_draft(0)])
        times = []
        for number in range(max(2, 7 // self._thin)):
            leader = self._leader(settings)
            began = time.perf_counter()
            leader.kill()
            _insist(log, _draft(number))
            times.append(time.perf_counter() - began)
            leader.start().ready()
            until(lambda: self._is_whole(settings), "the third copy")
        log.close()
        return [
            Result("first acknowledgement after a leader's kill -9, median", _median(times)),
            Result(f"the longest of {len(times)}", max(times), aim=10),
        ]

    def _join(self) -> list[Result]:
        """Reads the log alone, and checks and stores each record; views are built later."""
        settings = self._servers.stream("join")
        count = 100_000 // self._thin
        log = self._open("whole", settings)
        for first in range(0, count, MOST_IN_A_BATCH):
            _took(log, [_draft(number) for number in range(first, first + MOST_IN_A_BATCH)])
        began = time.perf_counter()
        joined = self._open("joins", settings)
        took = time.perf_counter() - began
        assert joined.head == log.head and joined.head.seq == count
        for one in (log, joined):
            one.close()
        return [Result(f"a node joins at {count:,} records", count / took, aim=20_000, unit="/s")]

    def _leader(self, settings: StreamSettings) -> Server:
        named = {server.name: server for server in self._servers}
        return named[self._cluster_state(settings)["leader"]]

    def _is_whole(self, settings: StreamSettings) -> bool:
        replicas = self._cluster_state(settings).get("replicas") or []
        return len(replicas) == 2 and all(one.get("current") for one in replicas)

    def _cluster_state(self, settings: StreamSettings) -> dict[str, Any]:
        """Returns the state of the stream's copies, as its leader reports it."""
        for server in self._servers:
            accounts = server.ask("/jsz?accounts=true&streams=true")
            for account in accounts.get("account_details") or []:
                for stream in account.get("stream_detail") or []:
                    cluster: dict[str, Any] = stream.get("cluster") or {}
                    if stream["name"] == settings.name and cluster.get("leader") == server.name:
                        return cluster
        return {}


def _insist(log: Log, draft: RecordDraft) -> None:
    """Appends the record, with retries until it succeeds."""
    while True:
        log.gather()
        with contextlib.suppress(KbprocError):
            _took(log, [draft])
            return


def _took(log: Log, drafts: list[RecordDraft]) -> float:
    began = time.perf_counter()
    with log.batch() as batch:
        batch.append(drafts)
        batch.commit()
    return time.perf_counter() - began


def _median(times: list[float]) -> float:
    return statistics.median(times)


def _draft(number: int) -> RecordDraft:
    return RecordDraft(
        ts="2026-01-01T00:00:00.000Z",
        actor="bench",
        method="doc.create",
        salt=f"{number:032x}",
        events=msgspec.Raw(b'[{"text":"' + b"x" * _BYTES + b'"}]'),
        result=msgspec.Raw(b'{"data":{"id":%d}}' % number),
    )


if __name__ == "__main__":
    leave(main())
