"""`python -m bench.page STORE`: measures the page in a browser: first paint, list, map, search.

STORE is made with `--chunks` chunks where it is not there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from bench import corpus
from bench.real_text import passages
from tests.kit.browser import Person, browser, opened

_TIMES = 7
# Notes for each request when it was sent and answered.
_WATCH = """
window.calls = [];
const real = window.fetch;
window.fetch = async (path, options = {}) => {
  const { method, params } = JSON.parse(options.body || "{}");
  const call = { method, params, from: performance.now() };
  calls.push(call);
  const response = await real(path, options);
  call.to = performance.now();
  return response;
};
"""
# Acts, and waits for the frame after what is to be shown stands there.
_SHOWN = """
const [act, is, method, done] = [new Function(arguments[0]), new Function(arguments[1]),
  arguments[2], arguments[3]];
calls.length = 0;
const began = performance.now();
act();
const look = () => {
  const call = calls.findLast((call) => call.method === method && call.to);
  if (!call || !is(call)) return requestAnimationFrame(look);
  const shown = performance.now();
  done({ whole: shown - began, request: shown - call.from, answer: shown - call.to });
};
requestAnimationFrame(look);
"""
_LIST = "return document.querySelectorAll('tbody tr').length > 0"
_MAP = (
    "return (document.querySelector('canvas')?.getAttribute('aria-label') || '').includes(' of ')"
)
_HITS = (
    "return call.params.mode === 'hybrid' && document.querySelector('.hit') && "
    "!document.querySelector('.summary').innerText.includes('By words')"
)

Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--chunks", type=int, default=100_000)
    options = parser.parse_args()
    corpus.grow(options.store, options.chunks)
    with opened(options.store) as page, browser() as driver:
        person = Person(driver, page).enter()
        figures = {"first paint": _paints(person)}
        person.script(_WATCH)
        figures["list"] = _median(person, "location.hash = '#/docs'", _LIST, "doc.list", "log")
        figures["map"] = _median(person, "location.hash = '#/health'", _MAP, "chunk.map", "log")
        figures["search"] = _searches(person)
    print(json.dumps(figures, indent=1))
    return 0


def _paints(person: Person) -> Figures:
    """Returns milliseconds from the navigation to the first paints."""
    script = "return performance.getEntriesByType('paint').map(e => [e.name, e.startTime])"
    paints: list[Figures] = []
    for _ in range(_TIMES):
        person.driver.get(person.page.url)
        person.settled()
        paints.append(dict(person.script(script)))
    return _medians(paints)


def _median(person: Person, act: str, condition: str, method: str, away: str) -> Figures:
    runs = []
    for _ in range(_TIMES):
        person.open(away)
        runs.append(_run(person, act, condition, method))
        person.settled()  # so that the rest of the view does not take part in the next run
    return {"first": runs[0]["request"], **_medians(runs)}


def _searches(person: Person) -> Figures:
    runs = []
    for passage in passages(_TIMES, seed=9, words=6):
        person.open("search")
        typed = json.dumps(passage.text)
        act = f"query.value = {typed}; query.dispatchEvent(new Event('input'))"
        runs.append(_run(person, act, _HITS, "search"))
    return _medians(runs)


def _run(person: Person, act: str, condition: str, method: str) -> Figures:
    condition = f"const [call] = arguments; {condition}"
    figures: Figures = person.driver.execute_async_script(_SHOWN, act, condition, method)
    return figures


def _medians(runs: list[Any]) -> Figures:
    return {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}


if __name__ == "__main__":
    raise SystemExit(main())
