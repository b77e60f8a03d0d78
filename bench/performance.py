"""`python -m bench.performance`: writes docs/evidence/performance.md and its charts.

It makes them from the committed results, and writes the figures of docs/cluster.md and
docs/install.md, too.

`--check` compares the page's generated blocks with the results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import cluster, sizes
from bench.charts import Line, Panel, Row, lines, points
from bench.measure import ROOT, Result, aligned, table
from tools.generate.outputs import with_blocks

PAGE = ROOT / "docs" / "evidence" / "performance.md"
_CHARTS = ROOT / "docs" / "evidence" / "performance"
_PEERS = ROOT / "bench" / "peers" / "results.json"
_LEGS = ROOT / "bench" / "results.json"
_LARGE = ROOT / "bench" / "large.json"
_STAGES = ROOT / "bench" / "stages.json"
_NONE = "—"


def main() -> int:
    """Returns 1 with --check if the page differs from the results."""
    checking = "--check" in sys.argv[1:]
    stale = [
        path
        for path, text in outputs().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is out of date' if checking else 'is written'}")
        if not checking:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(outputs()[path], encoding="utf-8")
    return int(checking and bool(stale))


def outputs() -> dict[Path, str]:
    """Returns the page and every chart with their right text."""
    peers, large = _read(_PEERS), _read(_LARGE)
    blocks = {
        "peers": _peers(peers),
        "parts": _parts(_read(_LEGS)),
        "stages": _stages(_read(_STAGES)),
        "growth": _growth(large),
    }
    files = {
        PAGE: with_blocks(PAGE.read_text(encoding="utf-8"), blocks),
        cluster.PAGE: cluster.page(),
        sizes.PAGE: sizes.page(),
    }
    if peers:
        files[_CHARTS / "searches.svg"] = _searches(peers["peers"])
        files[_CHARTS / "writes.svg"] = _writes(peers["peers"], peers["measured"])
    if large:
        files[_CHARTS / "growth.svg"] = _curve(large)
    return files


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


# ----------------------------------------------------------------------------- peers


def _peers(results: Any) -> str:
    if not results:
        return "Not measured yet: `make bench-peers`.\n"
    peers = list(results["peers"].values())
    parts = [
        _where(results["measured"]),
        "![Searches of kbproc and its peers](performance/searches.svg)",
        "![Writes of kbproc and its peers](performance/writes.svg)",
        _grid(peers, _FIGURES),
        "Words alone, no vectors anywhere:",
        _grid(_without_vectors(peers), _WORDS),
        "What kbproc aims at:",
        _aims(results["aims"]),
        "How each was called, and what it doesn't offer:",
        "\n".join(_called(peer) for peer in peers),
        *(f"`{key}` was left out: {why}" for key, why in results["missing"].items()),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _where(measured: Any) -> str:
    before, after = measured["load"]
    text = measured.get("text", "invented text")
    return (
        f"{measured['documents']:,} documents of some {measured['words']} words from {text}, "
        f"vectors of 384 floats, {measured['questions']} questions, {measured['inserts']:,} single "
        f"writes into an empty store. {measured['machine']}; load {before} before and {after} "
        f"after; {measured['on']}, commit {measured['commit']}."
    )


def _both(name: str) -> Callable[[Any], str]:
    def cell(peer: Any) -> str:
        return f"{_seconds(peer[name]['p50_s'])} / {_seconds(peer[name]['p99_s'])}"

    return lambda peer: cell(peer) if name in peer else _NONE


def _cell(name: str, format_value: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda peer: format_value(peer[name]) if name in peer else _NONE


def _seconds(value: float) -> str:
    """Returns seconds with three significant digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value * 1e6)} µs"


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


_Column = tuple[str, Callable[[Any], str]]
_FIGURES: Sequence[_Column] = (
    ("keyword p50 / p99", _both("keyword")),
    ("vector p50 / p99", _both("vector")),
    ("recall@10", _cell("recall", "{:.3f}".format)),
    ("hybrid p50 / p99", _both("hybrid")),
    ("single writes", _cell("inserts_s", _seconds)),
    ("then found", _cell("then_found_s", _seconds)),
    ("syncs a write", _cell("syncs_a_write", "{:.0f}".format)),
    ("bulk, documents/s", _cell("load_per_s", "{:,.0f}".format)),
    ("cold start to answer", _cell("first_answer_s", _seconds)),
    ("memory", _cell("memory_mib", "{:,.0f} MiB".format)),
    ("disk", _cell("disk_mib", "{:,.0f} MiB".format)),
)
_WORDS: Sequence[_Column] = (
    ("single writes, each committed", _cell("words_insert_s", _seconds)),
    ("then found", _cell("words_insert_then_found_s", _seconds)),
    ("pipelined", _cell("words_insert_many_s", _seconds)),
    ("then found ", _cell("words_insert_many_then_found_s", _seconds)),
)


def _without_vectors(peers: Sequence[Any]) -> list[Any]:
    """Returns the peers that can write without vectors, named accordingly."""
    with_words = [peer for peer in peers if "words_insert_s" in peer]
    return [{**peer, "name": peer["name"].removesuffix(" + sqlite-vec")} for peer in with_words]


def _grid(peers: Sequence[Any], columns: Sequence[_Column]) -> str:
    head = ["", *(name for name, _ in columns)]
    return aligned([head, *([p["name"], *(cell(p) for _, cell in columns)] for p in peers)])


def _aims(aims: Sequence[Any]) -> str:
    rows = [
        [a["claim"], f"{a['ratio']:.2f}×", f"≤ {a['aim']}×", "yes" if a["met"] else "NO"]
        for a in aims
    ]
    return aligned([["", "ratio", "aim", "met?"], *rows])


def _called(peer: Any) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in peer["versions"].items())
    how = "; ".join(f"**{what}** {description}" for what, description in peer["called"].items())
    lacks = f" Not offered: {peer['lacks']}." if peer["lacks"] else ""
    return f"- *{peer['name']}* ({versions}): {how}.{lacks}"


def _searches(peers: Any) -> str:
    panels = []
    for channel in ("keyword", "vector", "hybrid"):
        rows = [
            Row(p["name"], p[channel]["p50_s"], p[channel]["p99_s"], mine=key == "kbproc")
            for key, p in peers.items()
            if channel in p
        ]
        panels.append(Panel(f"{channel.capitalize()} search: median – p99", rows, _seconds))
    return points(panels)


def _writes(peers: Any, measured: Any) -> str:
    mine = "kbproc"
    inserts = [Row(p["name"], p["inserts_s"], mine=key == mine) for key, p in peers.items()]
    alone = {p["name"]: p for p in _without_vectors(list(peers.values()))}
    words = [
        Row(f"{name}{more}", alone[name][figure], mine=name == mine)
        for name, figure, more in (
            ("bare parts", "words_insert_many_s", ", 64 at once"),
            (mine, "words_insert_many_s", ", pipelined"),
            ("bare parts", "words_insert_s", ""),
            (mine, "words_insert_s", ""),
            ("SQLite FTS5", "words_insert_s", ""),
        )
        if name in alone
    ]
    first = [Row(p["name"], p["first_answer_s"], mine=key == mine) for key, p in peers.items()]
    return points(
        [
            Panel(f"{measured['inserts']:,} single writes", inserts, _seconds),
            Panel(f"{measured['inserts']:,} durable writes, words alone", words, _seconds),
            Panel("From a cold start to the first answer", first, _seconds),
        ]
    )


# ------------------------------------------------------------------ parts and growth


def _parts(results: Any) -> str:
    if not results:
        return "Not measured yet: `make bench`.\n"
    return f"{results['machine']}\n\n{table([Result(**leg) for leg in results['legs']])}"


def _stages(results: Any) -> str:
    if not results:
        return "Not measured yet: `python -m bench.stages`.\n"
    return "\n".join([f"{results['machine']}\n", *map(_staged, results["paths"])])


def _staged(path: Any) -> str:
    """Returns the stages' table; stages of many threads may add up to more than the whole."""
    whole = path["median"]
    rows = [
        [stage, _seconds(each), f"{each / whole:.0%}"] for stage, each in path["stages"].items()
    ]
    return (
        f"**{path['path']}**: {_seconds(whole)}\n\n{aligned([['stage', 'mean', 'share'], *rows])}"
    )


def _growth(results: Any) -> str:
    """`large.json`: {"measured": {"machine"}, "sizes": [{"chunks", and a number per figure}]}."""
    if not results:
        return "Not measured yet: `make bench-large`.\n"
    names = list(dict.fromkeys(name for size in results["sizes"] for name in size))
    rows = [[_grown(name, size.get(name)) for name in names] for size in results["sizes"]]
    head = [_named(name) for name in names]
    return (
        f"{results['measured']['machine']}\n\n"
        "![Growth from 1,000 to 1,000,000 chunks](performance/growth.svg)\n\n"
        f"{aligned([head, *rows])}"
    )


def _named(figure: str) -> str:
    """Returns the figure's name without its unit, which the cells show."""
    unit = "" if figure.endswith("_per_s") else "_s"
    return figure.removesuffix(unit).removesuffix("_mib").replace("_", " ")


def _grown(name: str, value: float | None) -> str:
    if value is None:
        return _NONE
    if name.endswith("_s") and not name.endswith("_per_s"):
        return _seconds(value)
    return f"{value:,.0f}{' MiB' if name.endswith('_mib') else ''}"


def _curve(results: Any) -> str:
    """Draws every time of a search, by the number of chunks."""
    sizes = results["sizes"]
    names = [n for n in sizes[0] if n.endswith("_s") and not n.endswith("_per_s")]
    series = [
        Line(
            _named(name),
            [(size["chunks"], size[name]) for size in sizes if name in size],
            mine=name.startswith("hybrid"),
        )
        for name in names
    ]
    return lines("Seconds by chunks in the store", series, "{:,.0f}".format, _seconds)


if __name__ == "__main__":
    sys.exit(main())
