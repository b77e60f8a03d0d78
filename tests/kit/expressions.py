"""Every regular expression of kbproc, and texts that are made to slow each one down."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

from kbproc.base import patterns
from tests.kit.growth import LEAST_SIZE, MOST_GROWTH, TooLong, least_growth, limited, seconds
from tools.code import ROOT, Code, code_of, files

_Lazy = type(patterns.lazy(""))
_WAYS = frozenset({"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"})
_MAKERS = frozenset({"compile", *_WAYS})
_ANCHORED = frozenset({"match", "fullmatch"})
_HOLDS = re.compile(r"\bre\.|\blazy\(|\bpattern\b")
_CONCERNS = re.compile(rf"{_HOLDS.pattern}|\.(?:{'|'.join(_WAYS)})\b")


class Expression(NamedTuple):
    """An expression, the place of its source, and the ways in which the code uses it."""

    place: str
    pattern: str | bytes
    flags: int
    ways: frozenset[str]

    def run(self) -> Callable[[Any], object]:
        """Returns a function that meets a text in the slowest way in which the code does."""
        compiled = re.compile(self.pattern, self.flags)
        if self.ways <= {"fullmatch"}:
            return compiled.fullmatch
        if self.ways <= _ANCHORED:
            return compiled.match
        return lambda text: deque(compiled.finditer(text), maxlen=0)


# ------------------------------------------------------------------------------ the code


@cache
def expressions() -> list[Expression]:
    """Returns the expressions of all modules: of calls of `re` and `lazy`, and those that other
    values hold, such as the shapes of secrets.
    """
    codes = [code_of(path) for path in files("kbproc") if _concerns(path)]
    everywhere = _uses(codes)
    unique: dict[tuple[Any, ...], Expression] = {}
    for here in codes:
        if not _HOLDS.search(here.text):
            continue
        name = ".".join(here.path.relative_to(ROOT).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        for each in itertools.chain(_written(module, here, everywhere), _held(module)):
            key = each.pattern, each.flags
            ways = unique[key].ways if key in unique else frozenset()
            unique[key] = each._replace(ways=each.ways | ways)
    return list(unique.values())


def _concerns(path: Path) -> bool:
    """Returns True if the file may hold or use an expression; to parse all takes seconds."""
    return path.name != "__main__.py" and bool(_CONCERNS.search(path.read_text(encoding="utf-8")))


def _written(module: ModuleType, file: Code, everywhere: _Uses) -> Iterator[Expression]:
    here = _uses([file])
    targets = {
        id(node.value): target.id
        for node in file.of(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in file.of(ast.Call):
        if not (node.args and (way := _maker(node.func))):
            continue
        pattern = _value(node.args[0], module)
        flags = _flags(node, way, module)
        if not isinstance(pattern, str | bytes):
            continue
        ways = frozenset({way})
        if way in {"compile", "lazy"}:
            name = targets.get(id(node), "")
            ways = (here if name.startswith("_") else everywhere).get(name, _WAYS)
        place = f"{module.__name__}:{node.lineno}"
        yield Expression(place, str(pattern) if isinstance(pattern, str) else pattern, flags, ways)


def _maker(function: ast.expr) -> str | None:
    match function:
        case ast.Attribute(value=ast.Name(id="re"), attr=attr) if attr in _MAKERS:
            return attr
        case ast.Name(id="lazy"):
            return "lazy"
    return None


def _flags(call: ast.Call, way: str, module: ModuleType) -> int:
    place = {"compile": 1, "lazy": 1, "split": 3, "sub": 4, "subn": 4}.get(way, 2)
    nodes = [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    nodes += call.args[place : place + 1]
    values = [_value(node, module) for node in nodes]
    return sum(int(value) for value in values if isinstance(value, int))


class _Sample(str):
    """Stands in an expression for a value that is known only when the code runs."""

    __slots__ = ()

    def __call__(self, *values: object) -> _Sample:
        return self

    def __getitem__(self, key: object) -> _Sample:
        return self

    def __getattr__(self, name: str) -> _Sample:
        return self


class _Locals(dict[str, Any]):
    """The names of a function: a sample for each name that its module does not have."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __missing__(self, name: str) -> Any:
        if hasattr(self._module, name) or hasattr(__builtins__, name) or name in dir(__builtins__):
            raise KeyError(name)
        return _Sample("x")


def _value(node: ast.expr, module: ModuleType) -> Any:
    if isinstance(node, ast.Starred):
        return None
    code = compile(ast.Expression(node), module.__name__, "eval")
    try:
        return eval(code, vars(module), _Locals(module))
    except (TypeError, ValueError, AttributeError, KeyError):
        return None


def _held(module: ModuleType) -> Iterator[Expression]:
    """Yields the expressions in the values of a module: a pattern, or what has one."""
    for name, value in list(vars(module).items()):
        for each in _members(value):
            pattern, flags = getattr(each, "pattern", None), getattr(each, "flags", 0)
            if isinstance(each, re.Pattern | _Lazy) or not isinstance(pattern, str | bytes):
                continue
            if type(each).__module__.startswith("kbproc") and isinstance(flags, int):
                place = f"{module.__name__}.{name}"
                yield Expression(place, pattern, flags, frozenset({"search"}))


def _members(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | frozenset | set):
        yield from value


_Uses = Mapping[str, frozenset[str]]


def _uses(files: Iterable[Code]) -> _Uses:
    """Returns for each name the methods of patterns that the code calls on it."""
    uses: dict[str, set[str]] = {}
    for file in files:
        for node in file.of(ast.Attribute):
            if node.attr in _WAYS:
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Name):
                        uses.setdefault(part.id, set()).add(node.attr)
    return {name: frozenset(ways) for name, ways in uses.items()}


# ---------------------------------------------------------------------- texts against it

_CANDIDATES = " a1<\"'\n-_/:.=>)]}\\|#&;,AZé中\t\0"
_MOST_UNITS = 48
_MOST_CHARACTERS = 7
_ENDS = "\x01", "a", ""


class _Unit(NamedTuple):
    """A piece of a text that an expression matches; `repeats`: it may stand there many times."""

    text: str
    repeats: bool = False


class Attack(NamedTuple):
    """A text with one piece many times, between a beginning and an end."""

    start: str
    piece: str
    end: str

    def text(self, size: int) -> str:
        """Returns the text with about so many characters."""
        count = max(1, (size - len(self.start)) // len(self.piece))
        return self.start + self.piece * count + self.end


def attacks(expression: Expression, variants: int) -> Iterator[Attack]:
    """Yields texts that the expression itself suggests, from so many ways through it.

    They repeat what it begins with, what it repeats, and the characters of its classes.
    """
    suggested: dict[tuple[str, str], None] = {}
    alphabet: dict[str, None] = {}
    for units in _ways(expression, variants):
        alphabet |= dict.fromkeys(unit.text for unit in units if len(unit.text) == 1)
        suggested |= dict.fromkeys(_of_units(units))
    characters = list(alphabet)[:_MOST_CHARACTERS]
    pairs = itertools.product(characters, repeat=2)
    suggested |= dict.fromkeys(("", "".join(dict.fromkeys(pair))) for pair in pairs)
    for start, piece in suggested:
        yield from (Attack(start, piece, end) for end in _ENDS if piece)


def random_attacks(expression: Expression, random: Random, count: int) -> Iterator[Attack]:
    """Yields texts of units in any order."""
    units = [unit.text for way in _ways(expression, 6) for unit in way if unit.text]
    for _ in range(count if units else 0):
        start = "".join(random.choices(units, k=random.randint(0, 8)))
        piece = "".join(random.choices(units, k=random.randint(1, 3)))
        yield Attack(start, piece, random.choice(_ENDS))


def _ways(expression: Expression, variants: int) -> Iterator[list[_Unit]]:
    pattern = expression.pattern
    source = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    parsed = parser.parse(source, expression.flags)
    for choice in range(variants):
        yield list(_units(parsed, choice, {}))[:_MOST_UNITS]


def _of_units(units: Sequence[_Unit]) -> Iterator[tuple[str, str]]:
    """Yields beginnings and pieces to repeat."""
    texts = [unit.text for unit in units]
    for end in range(1, len(units) + 1):
        yield "", "".join(texts[:end])
    for at, unit in enumerate(units):
        if unit.repeats:
            before = "".join(texts[:at])
            yield before, unit.text
            yield before, "".join(texts[at : at + 2])
            yield from (("", "".join(texts[start : at + 1])) for start in range(at + 1))


def _units(parsed: Any, choice: int, groups: dict[int, str]) -> Iterator[_Unit]:
    for code, argument in parsed:
        if code is codes.LITERAL:
            yield _Unit(chr(argument))
        elif code is codes.NOT_LITERAL:
            yield _Unit(next(c for c in _CANDIDATES if ord(c) != argument))
        elif code is codes.ANY:
            yield _Unit("a .<"[choice % 4])
        elif code is codes.IN:
            yield _Unit(_member(argument, choice))
        elif code is codes.BRANCH:
            branches = argument[1]
            yield from _units(branches[choice % len(branches)], choice, groups)
        elif code is codes.SUBPATTERN:
            units = list(_units(argument[3], choice, groups))
            if argument[0] is not None:
                groups[argument[0]] = "".join(unit.text for unit in units)
            yield from units
        elif code is codes.ATOMIC_GROUP:
            yield from _units(argument, choice, groups)
        elif code is codes.GROUPREF:
            yield _Unit(groups.get(argument, ""))
        elif code in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
            least, most, body = argument
            yield from _repeated(list(_units(body, choice, groups)), least, most, choice)


def _repeated(units: list[_Unit], least: int, most: Any, choice: int) -> Iterator[_Unit]:
    text = "".join(unit.text for unit in units)
    if most == 1:
        if choice % 2 == 0 or least:
            yield from units
    elif len(units) <= 1 or choice % 2:
        yield _Unit(text * min(max(least, 1), 300), repeats=True)
    else:
        yield from (unit._replace(repeats=True) for unit in units)


def _member(members: list[Any], choice: int) -> str:
    """Returns a character of a class: another one for each choice, where there are several."""
    compiled = _class(members)
    listed = []
    for code, argument in members:
        if code is codes.LITERAL:
            listed.append(chr(argument))
        elif code is codes.RANGE:
            listed.append(chr(argument[0]))
    fitting = [c for c in [*listed, *_CANDIDATES] if compiled(c)]
    fitting = list(dict.fromkeys(fitting)) or ["a"]
    return str(fitting[choice % len(fitting)])


def _class(members: list[Any]) -> Callable[[str], bool]:
    negated = bool(members) and members[0][0] is codes.NEGATE
    parts = members[negated:]

    def fits(character: str) -> bool:
        return any(_fits(code, argument, character) for code, argument in parts) != negated

    return fits


_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def _fits(code: Any, argument: Any, character: str) -> bool:
    if code is codes.LITERAL:
        return bool(ord(character) == argument)
    if code is codes.RANGE:
        return bool(argument[0] <= ord(character) <= argument[1])
    return re.match(_CATEGORIES[argument], character) is not None


# ------------------------------------------------------------------------------- growth

_SCREENED = 500, 2000  # characters
_SUSPECT = 6.5  # times as long for four times the text
_LEAST_S = 40e-6


def slowed_by(
    expression: Expression, texts: Iterable[Attack], measurements: int = 4, size: int = LEAST_SIZE
) -> tuple[Attack, float] | None:
    """Returns the first text with which the time grows faster than the text, and how fast.

    Short texts are compared first, because a quick look at each one suffices for most. `size`: the
    least characters of the texts that are measured.
    """
    run, as_bytes = expression.run(), isinstance(expression.pattern, bytes)

    def text_of(attack: Attack, size: int) -> Any:
        text = attack.text(size)
        return text.encode("latin-1", "replace") if as_bytes else text

    for attack in _suspects(run, texts, text_of):
        times = least_growth(run, partial(text_of, attack), measurements, size)
        if times > MOST_GROWTH:
            return attack, times
    return None


def _suspects(
    run: Callable[[Any], object], texts: Iterable[Attack], text_of: Callable[[Attack, int], Any]
) -> Iterator[Attack]:
    """Yields the texts that a quick look finds, up to one that takes too long."""
    with limited() as begin:
        for attack in texts:
            begin()
            try:
                is_suspect = _is_suspect(run, partial(text_of, attack))
            except TooLong:
                yield attack
                return
            if is_suspect:
                yield attack


def _is_suspect(run: Callable[[Any], object], text_of: Callable[[int], Any]) -> bool:
    short, long = _SCREENED
    text = text_of(long)
    return all(
        (took := seconds(run, text, times)) >= _LEAST_S
        and took >= _SUSPECT * seconds(run, text_of(short), times)
        for times in (1, 3)
    )
