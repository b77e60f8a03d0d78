"""Parses source code of any language, and cuts it where definitions begin.

The parser finds definitions by their keywords and their extent by indentation, which well-kept
code of every language has. Code without indentation becomes stanzas between blank lines.
"""

from __future__ import annotations

import re
from pathlib import PurePath

import msgspec

from kbproc.engine.sources.parse import sql_statements
from kbproc.engine.sources.parse.blocks import PATH, Block, Parsed, clean_text
from kbproc.engine.sources.parse.escapes import unescaped
from kbproc.engine.sources.parse.shapes import (
    OWN_ALONE,
    PRIVATE_BY_HASH,
    STARRED,
    TYPED,
    shaped,
    start,
)
from kbproc.engine.sources.parse.terminal import overstruck, without_codes
from kbproc.engine.sources.parse.text import decode

_SUFFIXES = {
    "assembly": "asm s",
    "awk": "awk",
    "batch": "bat cmd",
    "c": "c h",
    "clojure": "clj cljs cljc edn",
    "cmake": "cmake",
    "cpp": "cc cpp cxx hpp hh hxx ino",
    "csharp": "cs",
    "css": "css scss sass less",
    "cuda": "cu cuh",
    "dart": "dart",
    "diff": "diff patch",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "fortran": "f f90 f95 f03",
    "fsharp": "fs fsx",
    "go": "go",
    "graphql": "graphql gql",
    "groovy": "groovy gradle",
    "haskell": "hs",
    "ini": "ini cfg conf properties",
    "java": "java",
    "javascript": "js mjs cjs jsx",
    "json": "json jsonc json5 jsonl ndjson",
    "julia": "jl",
    "kotlin": "kt kts",
    "lisp": "lisp el scm",
    "lua": "lua",
    "make": "mk",
    "nim": "nim",
    "nix": "nix",
    "objective-c": "m mm",
    "ocaml": "ml mli",
    "pascal": "pas pp",
    "perl": "pl pm",
    "php": "php",
    "powershell": "ps1 psm1",
    "protobuf": "proto",
    "python": "py pyi pyw",
    "r": "r",
    "ruby": "rb rake gemspec",
    "rust": "rs",
    "scala": "scala sc",
    "shell": "sh bash zsh fish",
    "solidity": "sol",
    "sql": "sql",
    "svelte": "svelte",
    "swift": "swift",
    "tcl": "tcl",
    "terraform": "tf hcl tfvars",
    "toml": "toml",
    "typescript": "ts mts cts tsx",
    "verilog": "v sv svh",
    "vhdl": "vhd vhdl",
    "vue": "vue",
    "xml": "xml xsd xsl wsdl",
    "yaml": "yaml yml",
    "zig": "zig",
}
LANGUAGES: dict[str, str] = {
    f".{suffix}": language for language, all in _SUFFIXES.items() for suffix in all.split()
}
NAMES: dict[str, str] = {
    "Makefile": "make",
    "makefile": "make",
    "GNUmakefile": "make",
    "Dockerfile": "dockerfile",
    "Containerfile": "dockerfile",
    "CMakeLists.txt": "cmake",
    "Rakefile": "ruby",
    "Gemfile": "ruby",
    "Jenkinsfile": "groovy",
}
# Formats without definitions: data, markup and the like.
_FLAT = frozenset({"json", "yaml", "toml", "ini", "xml", "diff", "css"})

_MODIFIERS = (
    r"(?:(?:export|default|declare|pub(?:\([\w\s:]*\))?|public|private|protected|internal|static|"
    r"async|final|abstract|sealed|open|unsafe|extern(?:\s+\"[^\"]*\")?|inline|virtual|override|"
    r"const|constexpr|data|partial|readonly|case|local|suspend|enum(?=\s+(?:class|struct)\b)|"
    r"template\s*<[^>]*>)\s+)*"
)
_KEYWORD = re.compile(
    rf"\s*{_MODIFIERS}(?P<word>class|struct|enum|union|interface|trait|impl|module|mod|namespace|"
    r"object|record|extension|protocol|contract|message|service|package|def|defp|defmodule|"
    r"defmacro|defn|fn|func|fun|function|sub|procedure|type|macro_rules!)(?:\s*<[^>]*>)?\*?\s+"
    r"(?P<on>\([^)]*\)\s*)?(?P<name>[\w.:$~?!'-]*[\w$?!])"
)
# A function of the C family: modifiers and a return type, a name, an opening parenthesis.
_TYPE = (
    r"(?>pub\([\w\s:]*\)|extern\s+\"[^\"]*\"|template\s*<[^>]*>"
    r"|[A-Za-z_][\w:]*(?:<[^;()<>]*(?:<[^;()<>]*>[^;()<>]*)*>)?)"
)
_C_FUNCTION = re.compile(
    rf"\s*+(?:{_TYPE}[\s*&\[\]]++(?=[A-Za-z_~]))++(?P<name>[A-Za-z_~][\w:~]*+)\s*+\("
    r"(?:[^;=]*(?:\{.*|,|\)[\w\s:&]*|\()?|[^;]*[{,])$"
)
_STATEMENT = re.compile(
    r"\s*(?:return|else|if|for|while|switch|case|new|throw|await|yield|goto|delete|raise|and|or|"
    r"not|in|elif|print|assert|import|from|using|include|typedef|echo|del|with|except|asm|__asm__)\b"
)
_CONTAINER = re.compile(
    r"class|struct|enum|union|interface|trait|impl|module|mod|namespace|object|record|extension|"
    r"protocol|contract|service|package|defmodule"
)
# Lines that never end a definition: closers, labels, preprocessor, an opening brace.
_CONTINUES = re.compile(
    r"\s*(?:[\]})]|[Ee][Nn][Dd]\b|[Bb]egin\s*$|\{|#\s*(?:if|el|end)|\w+:\s*$|\"\"\"|''')"
)
# Lines that belong to the definition below them.
_LEADS = re.compile(r"\s*(?:@|#\[|\[\w|//|/\*|\*|#(?!!|\s*(?:include|define|if|el|end))|--|;;)")
# Behind a `struct` and its name: what has the type, such as a function.
_TYPE_OF = re.compile(
    r"\s*+[*&]|\s++(?!(?:final|extends|implements|permits|where|is|on)\b)\w++\s*+[(\[=;,]"
)
# A comment that a later line may end.
_COMMENT = re.compile(r"\s*/\*(?!.*\*/)")
_END = re.compile(r"@end\b")
# A type alone on its line, or the parameters of a template: the name follows.
_TYPE_ALONE = re.compile(r"[A-Za-z_]\w*+(?:\s*+[\w:*&<>,]++)*+\s*+$")
# Longer lines are not matched, because they are data or minified code, and slow to match.
_LINE_CHARS = 400


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a source file, and `metadata["language"]` if it can be told.

    `section` is the path of enclosing definitions, "class Foo > def bar"; in SQL, what a statement
    makes or fills, "table users".
    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = decode(data, name)
    text, codes = without_codes(decoded.text)
    path = PurePath(name)
    clean = clean_text(unescaped(overstruck(text), path.suffix.lower()))
    lines = clean.split("\n")
    language = NAMES.get(path.name) or LANGUAGES.get(path.suffix.lower()) or _shebang(lines[0])
    blocks = sql_statements.blocks(clean) if language == "sql" else _blocks(lines, language)
    return Parsed(
        blocks=list(blocks),
        metadata={"language": language} if language else {},
        unread={"replaced_bytes": decoded.replaced, "terminal_codes": codes},
    )


def _shebang(line: str) -> str | None:
    program = re.match(r"#!.*?\b(python|bash|sh|zsh|perl|ruby|node|lua|awk|php)[\d.]*\b", line)
    if not program:
        return None
    return {"bash": "shell", "sh": "shell", "zsh": "shell", "node": "javascript"}.get(
        program[1], program[1]
    )


class _Scope(msgspec.Struct, frozen=True):
    """A definition around the current line; its body is indented deeper than `indent`.

    `indent` is -1 where only `@end` ends it.
    """

    indent: int
    label: str
    container: bool


def _sections(lines: list[str], language: str | None) -> list[str | None]:
    """Returns for each line the path of the definitions around it."""
    scopes: list[_Scope] = []
    sections: list[str | None] = []
    path = None
    lead = 0
    is_comment = False
    for i, line in enumerate(lines):
        if is_comment:
            is_comment = "*/" not in line
            sections.append(path)
            continue
        if not line.strip():
            sections.append(path)
            lead = i + 1
            continue
        is_comment = language in STARRED and bool(_COMMENT.match(line))
        indent = _indent(line)
        defined = _definition(lines, i, indent, language, scopes)
        if scopes and scopes[-1].indent >= indent and (defined or not _CONTINUES.match(line)):
            while scopes and scopes[-1].indent >= indent:
                scopes.pop()
            path = _path(scopes)
        if defined and all(scope.container for scope in scopes):
            scopes.append(defined)
            path = _path(scopes)
            # Decorators and comments right above belong to this definition.
            sections[lead:] = [path] * (i - lead)
        sections.append(path)
        if _END.match(line):
            scopes.clear()
            path = None
            lead = i + 1
        elif defined or not _leads(line, language):
            lead = i + 1
    return sections


def _leads(line: str, language: str | None) -> bool:
    """Tells whether a line may belong to the definition below it."""
    if language in PRIVATE_BY_HASH and line.lstrip().startswith("#"):
        return False
    return bool(_LEADS.match(line) or (language in TYPED and _TYPE_ALONE.match(line)))


def _path(scopes: list[_Scope]) -> str | None:
    return PATH.join(scope.label for scope in scopes) or None


def _indent(line: str) -> int:
    start = line[: len(line) - len(line.lstrip())]
    return len(start.expandtabs(4))


def _definition(
    lines: list[str], at: int, indent: int, language: str | None, scopes: list[_Scope]
) -> _Scope | None:
    """Returns the definition that begins with a line; one within a function belongs to that."""
    line = lines[at]
    outer = next((each for each in reversed(scopes) if each.indent < indent), None)
    if len(line) > _LINE_CHARS or (outer and not outer.container):
        return None
    around = outer.label.split()[-1] if outer else ""
    if shape := shaped(lines, at, language, around):
        is_ended = shape.label.startswith("@")
        return _Scope(-1 if is_ended else indent, shape.label, shape.container)
    if language in OWN_ALONE or _STATEMENT.match(line):
        return None
    begin = start(line, language)
    match = _KEYWORD.match(line, begin)
    if match and not (language in TYPED and _TYPE_OF.match(line, match.end())):
        word, receiver = match["word"], match["on"]
        name = match["name"]
        label = f"{word} {receiver.strip()} {name}" if receiver else f"{word} {name}"
        return _Scope(indent, label, bool(_CONTAINER.fullmatch(word)))
    match = _C_FUNCTION.match(line, begin) if language in TYPED else None
    return _Scope(indent, f"{match['name']}()", False) if match else None


def _blocks(lines: list[str], language: str | None) -> list[Block]:
    """Returns a block for each stanza, which ends at a blank line or where the section changes."""
    no_sections: list[str | None] = [None] * len(lines)
    sections = no_sections if language in _FLAT else _sections(lines, language)
    blocks: list[Block] = []
    start = 0
    for i in range(1, len(lines) + 1):
        if i < len(lines) and lines[i].strip() and sections[i] == sections[start]:
            continue
        text = "\n".join(lines[start:i])
        if text.strip():
            section = sections[i - 1]
            blocks.append(Block(text=text, section=section, kind="code", line=start + 1))
        start = i
    return blocks
