"""The shapes of definitions that no keyword common to all languages tells, by language."""

from __future__ import annotations

import re
from typing import NamedTuple

from kbproc.base.patterns import lazy


class Shape(NamedTuple):
    """How a line looks that begins a definition, and how the lines beside it must look.

    The group `name` names it, `word` is its keyword, `value` a name without parentheses, `open`
    parentheses that a later line closes, and `type` a constructor, which its class must enclose.
    A line without `needs` is not matched, because a line is matched slowly.
    """

    pattern: re.Pattern[str]
    container: bool = False
    needs: str = ""
    before: re.Pattern[str] | None = None
    after: re.Pattern[str] | None = None
    closing: re.Pattern[str] | None = None


def _balanced(first: str, last: str, plain: str, depth: int) -> str:
    """Returns an expression for brackets with others within, which is linear in its text."""
    inner = plain
    for _ in range(depth):
        inner = rf"{plain}(?:{first}{inner}{last}{plain})*+"
    return rf"{first}{inner}{last}"


def _words(words: str) -> str:
    """Returns an expression for any number of these words, each with a space behind it."""
    return rf"(?:(?:{words.replace(' ', '|')})\s++)*+"


_ARGS = _balanced(r"\(", r"\)", r"[^()]*+", 3)
_ANGLES = _balanced("<", ">", r"(?:[^<>=-]++|[=-]>?)*+", 3)
# Parentheses that the line does not close.
_OPEN = rf"(?P<open>\([^()]*+(?:{_ARGS}[^()]*+)*+$)"
_QUOTED = r"'[^']*+'|\"[^\"]*+\""

# ----------------------------------------------------------------- JavaScript and TypeScript

_JS_WORDS = _words(
    "export default declare const let var public private protected static readonly override "
    "abstract accessor async"
)
_JS_ARROW = rf"(?:{_ARGS}(?:\s*+:[^=;]*+)?|[\w$]++)\s*+=>"
_JS_FUNCTION = (
    r"(?:(?:React\.)?(?:memo|forwardRef|useCallback|observer|debounce|throttle|\w*Handler)"
    rf"(?:{_ANGLES})?\()?(?:async\b\s*+)?"
    rf"(?:function\b|(?:{_ANGLES})?(?:{_JS_ARROW}|{_OPEN}))"
)
_JS_ASSIGNED = (
    rf"{_JS_WORDS}(?P<name>[\w$#]++(?:\.[\w$#]++)*+)[?!]?(?:\s*+:(?:[^=]|=>)*+)?\s*+=(?![=>])\s*+"
)
_JS_ARROW_CLOSING = lazy(r"\A\s*+[\]})](?:\s*+:[^)]*+)?\)?\s*+(?::[^=]*+)?=>")
_JAVASCRIPT = (
    Shape(
        lazy(
            r"\A\s*+(?!(?:if|for|while|switch|catch|with|return|function|super|await)\b\s*+\()"
            rf"{_JS_WORDS}(?:(?P<word>get|set)\s++)?\*?\s*+"
            rf"(?P<name>[\w$#]++|\[[^\]]*+\]|{_QUOTED})[?!]?"
            rf"(?:{_ANGLES})?\s*+(?:{_ARGS}\s*+(?::[^;]*)?\{{|{_OPEN})"
        ),
        closing=lazy(r"\A\s*+[\]})](?:\s*+:[^)]*+)?\)?\s*+(?::[^;=]*)?\{\s*+$"),
        needs="(",
    ),
    Shape(lazy(rf"\A\s*+{_JS_ASSIGNED}{_JS_FUNCTION}"), closing=_JS_ARROW_CLOSING, needs="="),
    Shape(
        lazy(
            # A member of an interface has the same shape, but ends with a semicolon.
            rf"\A\s*+(?P<name>[\w$]++|{_QUOTED})\s*+:\s*+(?!.*(?:;|=>\s*+void,?)\s*+$)"
            rf"{_JS_FUNCTION}"
        ),
        closing=_JS_ARROW_CLOSING,
        needs=":",
    ),
    Shape(lazy(rf"\A\s*+{_JS_ASSIGNED}(?P<word>class)\b"), container=True, needs="class"),
    Shape(lazy(rf"\A\s*+{_JS_WORDS}(?P<word>function)\s*+\*\s*+(?P<name>[\w$]++)"), needs="*"),
    Shape(
        lazy(r"\A\s*+export\s++(?P<name>default)\s++(?P<word>class)\s*+(?=\{|extends\b)"),
        container=True,
        needs="export",
    ),
    Shape(
        lazy(
            r"\A\s*+export\s++(?P<name>default)\s++(?:async\b\s*+)?"
            rf"(?:function\s*+\*?\s*+\(|{_JS_ARROW}|{_OPEN})"
        ),
        closing=_JS_ARROW_CLOSING,
        needs="export",
    ),
)

# ------------------------------------------------------------------------- the family of C

_TYPED_WORDS = _words(
    "public private protected internal static final abstract async override virtual sealed const "
    "constexpr inline explicit extern readonly synchronized native default unsafe partial new "
    "external factory late covariant friend required"
)
_TYPE = rf"[A-Za-z_][\w.:]*+(?:{_ANGLES})?[?*&\[\]]*+"
_BODY = rf"\s*+(?:{_ARGS}(?!\s*+[;=.,)])|{_OPEN})"
_BODY_BEGINS = lazy(r"\A\s*+[\[\](){}][^;]*+$")
# The name and its arguments, on a line of their own below the type.
_BELOW_ITS_TYPE = Shape(
    lazy(r"\A(?P<name>[A-Za-z_]\w*+(?:::~?\w++)*+)\s*+\([^;]*+$"),
    before=lazy(r"\A(?!else\b|do\b|return\b)[A-Za-z_][\w:]*+(?:\s*+[\w:*&<>,]++)*+\s*+$"),
    needs="(",
)
# A macro or an attribute stands before the name.
_EXPORTED = Shape(
    lazy(
        rf"\A\s*+(?P<word>class|struct|union)\s++(?:(?:[A-Z_]\w*+(?:\s*+{_ARGS})?|alignas{_ARGS}"
        r"|\[\[[^\]]*+\]\])\s++(?!final\b)(?=\w))++(?P<name>\w++)\s*+(?:final\s*+)?(?:[:{]|$)"
    ),
    container=True,
)
_CONSTRUCTOR = Shape(
    lazy(rf"\A\s*+{_TYPED_WORDS}(?P<type>~?[A-Za-z_]\w*+(?:(?:\.|::)~?\w++)*+){_BODY}"),
    closing=_BODY_BEGINS,
    needs="(",
)
_GENERIC = Shape(
    lazy(
        rf"\A\s*+{_TYPED_WORDS}(?:{_ANGLES}\s*+{_TYPE}|[A-Za-z_][\w.:]*+{_ANGLES}[?*&\[\]]*+)"
        rf"\s[\s*&]*+(?P<name>[A-Za-z_][\w:]*+)(?:{_ANGLES})?{_BODY}"
    ),
    closing=_BODY_BEGINS,
    needs="<",
)
_OF_TYPES = Shape(
    lazy(
        rf"\A\s*+{_TYPED_WORDS}{_TYPE}\s[\s*&]*+"
        rf"(?P<name>[A-Za-z_]\w*+{_ANGLES}(?:::~?\w++)*+){_BODY}"
    ),
    closing=_BODY_BEGINS,
    needs="<",
)
_OPERATOR = Shape(
    lazy(
        rf"\A\s*+{_TYPED_WORDS}(?:{_TYPE}\s*+)?(?P<name>(?:\w++::)?operator\s*+"
        rf"(?:\(\)|\[\]=?|[^\s\w(;]++|[\w:]++[\s*&]*+)){_BODY}"
    ),
    needs="operator",
)
_EXPRESSION = Shape(
    lazy(
        rf"\A\s*+{_TYPED_WORDS}{_TYPE}\s++(?P<name>\w++)(?:{_ANGLES})?\s*+{_ARGS}\s*+(?:async\s*+)?=>"
    ),
    needs="=>",
)
_CS_PROPERTY = (
    r"\s*+(?!.*\b(?:class|struct|record|interface|enum|event|delegate|namespace)\b)"
    rf"(?:(?:public|private|protected|internal)\s++){_TYPED_WORDS}{_TYPE}\s++(?P<value>\w++)\s*+"
)
_C_LIKE = (_CONSTRUCTOR, _OPERATOR, _GENERIC, _OF_TYPES)
_OBJECTIVE_C = (
    Shape(
        lazy(r"\A(?P<word>@implementation|@interface|@protocol)\s++(?P<name>\w++)(?!.*;)"),
        container=True,
    ),
    Shape(lazy(r"\A[-+]\s*+\([^)]*+\)\s*+(?P<selector>\w[^{;]*+)(?:\{|$)")),
    _BELOW_ITS_TYPE,
)

# -------------------------------------------------------------------------------- others

_SWIFT_WORDS = (
    r"(?:(?:public|private|fileprivate|internal|open|package|final|static|class|override|required|"
    r"convenience|mutating|nonmutating|dynamic|lazy|weak|unowned|indirect|nonisolated|distributed|"
    r"prefix|postfix|infix|optional|consuming|borrowing)(?:\(\w++\))?\s++)*+"
)
_KOTLIN_WORDS = _words(
    "public private protected internal open final abstract sealed override suspend inline tailrec "
    "operator infix external expect actual lateinit const data inner annotation value enum fun"
)
_KOTLIN_WORDS_OF_FUNCTIONS = _KOTLIN_WORDS.replace("|fun)", ")")
_SCALA_WORDS = (
    r"(?:(?:(?:private|protected)(?:\[\w++\])?|implicit|override|final|lazy|inline|transparent|"
    r"sealed|abstract|case|open|opaque|infix)\s++)*+"
)
_HASKELL_NAME = (
    r"(?!(?:where|let|in|of|if|then|else|case|do|deriving|import|module|data|type|newtype|class|"
    r"instance|infix[lr]?|foreign|default|pattern)\b)[a-z_][\w']*+"
)
_HASKELL_SIGN = r"(?!(?:=|\||<-|->|::)\s)[!#$%&*+./<=>?@^|~:-]++"
_HASKELL_ARGUMENT = rf"[\w'!~@.]++|{_ARGS}|\[[^\]]*+\]|\"[^\"]*+\""
_FORTRAN_WORDS = (
    r"(?:(?:pure|impure|elemental|recursive|integer|real|logical|complex|character|type|double|"
    r"precision)(?:\*\d++)?(?:\([^)]*+\))?\s++)*+"
)
_LISP = (
    Shape(
        lazy(
            r"\A\s*+\((?P<word>(?:cl-)?(?!default)def[\w*!-]*+|ns)\s++\(?\s*+(?:\^\S++\s++)*+"
            r"(?P<name>[^\s()\[\]{}\"']++)"
        )
    ),
)
_ML = (
    Shape(
        lazy(
            r"\A\s*+(?P<word>let|and|val)\s++(?:(?:rec|inline|private|mutable|internal)\s++)*+"
            r"(?P<name>[a-z_][\w']*+|\(\s*+[^\w\s()]++\s*+\))"
        )
    ),
    Shape(lazy(r"\A\s*+(?P<word>module)\s++(?:type\s++|rec\s++)*+(?P<name>\w++)"), container=True),
    Shape(lazy(r"\A\s*+(?P<word>class|type|and)\s++(?P<name>[A-Z]\w*+)"), container=True),
    Shape(
        lazy(
            r"\A\s*+(?:static\s++|abstract\s++)?(?P<word>member|method|override)\s++"
            r"(?:(?:private|virtual|inline)\s++|!\s*+)*+(?:\w++\.)?(?P<name>\w++)"
        )
    ),
    Shape(lazy(r"\A\s*+(?P<word>type)\s++(?:\([^)]*+\)\s*+|'\w++\s++)?(?P<name>[a-z]\w*+)")),
)

# Languages in which a member whose name begins with "#" is private.
PRIVATE_BY_HASH = frozenset({"javascript", "typescript", "vue", "svelte"})
SHAPES: dict[str | None, tuple[Shape, ...]] = {
    **dict.fromkeys(PRIVATE_BY_HASH, _JAVASCRIPT),
    **dict.fromkeys(("clojure", "lisp"), _LISP),
    **dict.fromkeys(("ocaml", "fsharp"), _ML),
    # A header of C may be one of C++.
    **dict.fromkeys(("c", "cpp", "cuda"), (_BELOW_ITS_TYPE, _EXPORTED, *_C_LIKE)),
    "objective-c": _OBJECTIVE_C,
    "java": _C_LIKE,
    "groovy": _C_LIKE,
    "csharp": (
        *_C_LIKE,
        _EXPRESSION,
        Shape(lazy(rf"\A{_CS_PROPERTY}(?:=>|\{{\s*+(?:get|set|init)\b)")),
        Shape(lazy(rf"\A{_CS_PROPERTY}$"), after=lazy(r"\A\s*+\{")),
    ),
    "dart": (
        Shape(
            lazy(
                rf"\A\s*+{_TYPED_WORDS}(?:{_TYPE}\s++)?(?P<word>get|set)\s++(?P<name>\w++)\s*+"
                r"(?:\(|=>|\{|async)"
            )
        ),
        *_C_LIKE,
        _EXPRESSION,
        Shape(lazy(r"\A\s*+(?P<word>mixin|extension)\s++(?P<name>\w++)"), container=True),
    ),
    "solidity": (
        Shape(lazy(r"\A\s*+(?P<name>constructor|receive|fallback)\s*+\(")),
        Shape(lazy(r"\A\s*+(?P<word>modifier|event|error)\s++(?P<name>\w++)")),
    ),
    "shell": (
        Shape(lazy(r"\A\s*+(?P<word>function)\s++(?P<name>[\w.:+@-]++)")),
        Shape(lazy(r"\A\s*+(?P<name>[\w.:+@-]++)\s*+\(\s*+\)\s*+(?:[{(].*)?$")),
    ),
    "r": (
        Shape(
            lazy(
                r"\A\s*+(?P<name>[\w.]++|`[^`]++`|\"[^\"]++\")\s*+(?:<<?-|=)\s*+(?:function\b|\\\()"
            )
        ),
        Shape(lazy(r"\A\s*+set(?:Method|Generic|Validity)\(\s*+[\"'](?P<name>[^\"']++)")),
        Shape(
            lazy(r"\A\s*+(?P<name>[\w.]++)\s*+(?:<-|=)\s*+(?:\w++::)?(?:R6Class|setRefClass)\("),
            container=True,
        ),
    ),
    "swift": (
        Shape(lazy(rf"\A\s*+{_SWIFT_WORDS}(?P<word>func)\s++(?P<name>`?\w++`?|[^\s\w(<]++)")),
        Shape(lazy(rf"\A\s*+{_SWIFT_WORDS}(?P<name>init|deinit|subscript)\b[?!]?\s*+[(<{{]")),
        Shape(lazy(rf"\A\s*+{_SWIFT_WORDS}(?P<word>var)\s++(?P<name>`?\w++`?)\s*+:[^={{]*+\{{")),
        Shape(
            lazy(
                rf"\A\s*+{_SWIFT_WORDS.replace('class|', '')}"
                r"(?P<word>class|struct|enum|protocol|extension|actor)\s++(?P<name>[\w.]++)"
            ),
            container=True,
        ),
    ),
    "lua": (
        Shape(
            lazy(r"\A\s*+(?:local\s++)?(?P<name>[\w.:]++|\[\"[^\"]*+\"\])\s*+=\s*+function\b"),
        ),
    ),
    "haskell": (
        Shape(
            lazy(
                rf"\A\s*+(?P<name>{_HASKELL_NAME}|\([^\w\s()]++\))"
                rf"(?:\s*+,\s*+(?:[\w']++|\([^\w\s()]++\)))*+\s*+::"
            )
        ),
        Shape(lazy(r"\A\s*+(?P<word>module)\s++(?P<name>[\w.]++)")),
        Shape(
            lazy(
                r"\A(?P<word>data|newtype|type)\s++(?:(?:family|instance)\s++)?(?P<name>[A-Z]\w*+)"
            )
        ),
        Shape(lazy(r"\A(?P<word>class)\s++(?:[^=]*+=>\s*+)?(?P<name>\w++)"), container=True),
        Shape(
            lazy(r"\A(?P<word>instance)\s++(?:[^=]*+=>\s*+)?(?P<name>(?:(?!where\b)\S++\s*+)++)"),
            container=True,
        ),
        Shape(
            lazy(
                rf"\A\s*+(?:[\w']++|{_ARGS})\s++(?P<name>{_HASKELL_SIGN}|`\w++`)\s++"
                r"[\w'(\[][^=]*+=(?!=)"
            )
        ),
        Shape(
            lazy(
                rf"\A\s*+(?P<name>{_HASKELL_NAME})(?:\s++(?:{_HASKELL_ARGUMENT}))*+\s*+"
                r"(?:=(?![=>])|\||$)"
            )
        ),
    ),
    "kotlin": (
        Shape(
            lazy(
                rf"\A\s*+{_KOTLIN_WORDS_OF_FUNCTIONS}(?P<word>fun)\s++(?:{_ANGLES}\s*+)?"
                rf"(?P<name>(?:\w++(?:{_ANGLES})?\??\.)*+(?:`[^`]++`|\w++))\s*+\("
            )
        ),
        Shape(
            lazy(rf"\A\s*+{_KOTLIN_WORDS}(?P<word>companion\s++object)\b\s*+(?P<name>\w*+)"),
            container=True,
        ),
        Shape(
            lazy(rf"\A\s*+{_KOTLIN_WORDS}(?P<word>class|interface|object)\s++(?P<name>\w++)"),
            container=True,
        ),
        Shape(lazy(rf"\A\s*+{_KOTLIN_WORDS}(?P<name>init|constructor)\s*+[({{]")),
        Shape(
            lazy(
                rf"\A\s*+{_KOTLIN_WORDS}(?P<word>va[lr])\s++(?:\w++\.)*+(?P<name>\w++)\s*+"
                r"(?::[^={]*+)?$"
            ),
            after=lazy(r"\A\s*+(?:get|set)\s*+\("),
        ),
        Shape(
            lazy(
                rf"\A\s*+{_KOTLIN_WORDS}(?P<word>va[lr])\s++(?:\w++\.)*+(?P<name>\w++)\s*+"
                r":[^=]*\bget\(\)"
            )
        ),
    ),
    "scala": (
        Shape(lazy(rf"\A\s*+{_SCALA_WORDS}(?P<word>def)\s++(?P<name>`[^`]++`|\w++|[^\s\w(\[:]++)")),
        Shape(
            lazy(rf"\A\s*+{_SCALA_WORDS}(?P<word>class|trait|object|enum)\s++(?P<name>\w++)"),
            container=True,
        ),
    ),
    "php": (
        Shape(
            lazy(
                rf"\A\s*+{_words('public private protected static final abstract')}"
                r"(?P<word>function)\s++&?(?P<name>\w++)"
            )
        ),
        Shape(lazy(r"\A\s*+(?P<name>\$[\w>-]++)\s*+=\s*+(?:static\s++)?(?:function|fn)\s*+&?\(")),
    ),
    "ruby": (
        Shape(
            lazy(
                r"\A\s*+(?:(?:private|protected|public|private_class_method|module_function|memoize)"
                r"\s++)*+(?P<word>def)\s++"
                r"(?P<name>(?:\w++\.)?(?:\w++(?:[?!]|=(?=[\s(]))?|\[\]=?|[^\s\w(]++))"
            )
        ),
        Shape(lazy(r"\A\s*+define_method[\s(]\s*+:?[\"']?(?P<name>\w++[?!=]?)")),
        Shape(lazy(r"\A\s*+(?P<word>class)\s++(?P<name><<\s*+\w++)"), container=True),
    ),
    "elixir": (
        Shape(
            lazy(
                r"\A\s*+(?P<word>defmodule|defprotocol|defimpl|describe)\s++"
                r"(?P<name>[\w.]++|\"[^\"]*+\")"
            ),
            container=True,
        ),
        Shape(
            lazy(
                r"\A\s*+(?P<word>def(?:p|n|np|macrop?|guardp?|delegate)?|test)\s++"
                r"(?P<name>[\w.]++[?!]?|\"[^\"]*+\")"
            )
        ),
    ),
    "go": (Shape(lazy(r"\A\s*+(?:var\s++)?(?P<name>\w++)\s*+:?=\s*+func\b")),),
    "rust": (
        Shape(
            lazy(
                rf"\A\s*+(?:(?:unsafe|default)\s++)*+(?P<word>impl)(?:{_ANGLES})?\s++"
                r"(?P<name>(?:(?!where\b)[^\s{]++\s*+)++)"
            ),
            container=True,
        ),
    ),
    "perl": (Shape(lazy(r"\A\s*+(?:(?:my|our|local)\s++)?(?P<name>[$*][\w:]++)\s*+=\s*+sub\b")),),
    "julia": (
        Shape(lazy(rf"\A\s*+(?P<name>[\w.!]++){_ARGS}(?:::[^=]*+)?\s*+(?:where\b[^=]*+)?=(?!=)")),
        Shape(lazy(r"\A\s*+(?:mutable\s++)?(?P<word>struct|macro)\s++(?P<name>\w++)")),
    ),
    "erlang": (
        Shape(lazy(rf"\A(?P<name>[a-z][\w@]*+){_ARGS}\s*+(?:when\b.*)?->")),
        Shape(lazy(r"\A-spec\s++(?P<name>[a-z][\w@]*+)\s*+\(")),
        Shape(lazy(r"\A-(?P<word>record|type|opaque)\s*+\(?\s*+(?P<name>\w++)")),
    ),
    "nim": (
        Shape(
            lazy(
                r"\A\s*+(?P<word>proc|func|method|iterator|template|macro|converter)\s++"
                r"(?P<name>`[^`]++`|\w++)"
            )
        ),
    ),
    "powershell": (
        Shape(lazy(r"(?i)\A\s*+(?P<word>function|filter)\s++(?:\w++:)?(?P<name>[\w-]++)")),
        Shape(lazy(r"(?i)\A\s*+(?P<word>class|enum)\s++(?P<name>\w++)"), container=True),
        Shape(
            lazy(
                r"\A\s*+(?:(?:static|hidden)\s++)*+\[[\w.\[\]]++\]\s*+"
                rf"(?P<name>\w++)\s*+{_ARGS}\s*+\{{"
            )
        ),
    ),
    "fortran": (
        Shape(
            lazy(
                rf"(?i)\A\s*+{_FORTRAN_WORDS}(?P<word>subroutine|function|program|submodule)\s++"
                r"(?P<name>\w++)"
            )
        ),
        Shape(lazy(r"(?i)\A\s*+(?P<word>module)\s++(?!procedure)(?P<name>\w++)"), container=True),
    ),
    "pascal": (
        Shape(
            lazy(
                r"(?i)\A\s*+(?:class\s++)?(?P<word>procedure|function|constructor|destructor)\s++"
                r"(?P<name>[\w.]++)"
            )
        ),
    ),
    "tcl": (Shape(lazy(r"\A\s*+(?P<word>proc|method)\s++(?P<name>[\w:.-]++)")),),
    "cmake": (Shape(lazy(r"(?i)\A\s*+(?P<word>function|macro)\s*+\(\s*+(?P<name>\w++)")),),
    "verilog": (
        Shape(
            lazy(
                r"\A\s*+(?P<word>function|task)\s++(?:automatic\s++)?(?:\w++\s++)?"
                r"(?:\[[^\]]*+\]\s*+)?(?P<name>\w++)\s*+[;(]"
            )
        ),
    ),
    "zig": (
        Shape(
            lazy(
                r"\A\s*+(?:pub\s++)?const\s++(?P<name>\w++)\s*+=\s*+(?:(?:packed|extern)\s++)?"
                r"(?P<word>struct|enum|union)\b"
            ),
            container=True,
        ),
        Shape(lazy(r"\A\s*+(?P<word>test)\s++(?P<name>\"[^\"]*+\")")),
    ),
    "protobuf": (Shape(lazy(r"\A\s*+(?P<word>rpc)\s++(?P<name>\w++)")),),
}
# Languages in which the keywords of the others begin no definition.
OWN_ALONE = frozenset(
    [
        "shell",
        "r",
        "haskell",
        "clojure",
        "lisp",
        "erlang",
        "ocaml",
        "fsharp",
        "tcl",
        "make",
        "cmake",
        "dockerfile",
        "batch",
    ]
)
# Languages whose functions begin with a type; None: an unknown language.
TYPED = frozenset(
    [None, "c", "cpp", "cuda", "csharp", "dart", "groovy", "java", "objective-c", "solidity"]
)
# Languages with comments between "/*" and "*/".
STARRED = TYPED | PRIVATE_BY_HASH | {"go", "rust", "swift", "kotlin", "scala", "php", "verilog"}
# Languages in which an annotation may stand before a definition, on its line.
_ANNOTATED = frozenset({"java", "kotlin", "scala", "groovy", "csharp", "php"}) | frozenset(
    {"javascript", "typescript", "dart", "swift", "rust", "julia", "c", "cpp", "cuda"}
)
_ANNOTATIONS = lazy(rf"\s*+(?:(?:@[\w.:]++(?:{_ARGS})?|#?\[\[?\w[^\]]*+\]\]?)\s++)++(?=[\w#<$])")
_MOST_LINES = 40
_SELECTOR = lazy(r"(?<!\w)\w++:")
_TYPES = lazy(r"\([^()]*+\)")


class Definition(NamedTuple):
    """The label of a definition; `container`: others may stand within it."""

    label: str
    container: bool


def start(line: str, language: str | None) -> int:
    """Returns the character behind the annotations that stand on the line."""
    match = None
    if language in _ANNOTATED and ("@" in line or "[" in line):
        match = _ANNOTATIONS.match(line)
    return match.end() if match else 0


def shaped(lines: list[str], at: int, language: str | None, around: str) -> Definition | None:
    """Returns the definition that begins with this line, by the shapes of its language.

    `around`: the name of the definition around it.
    """
    line = lines[at][start(lines[at], language) :]
    for shape in SHAPES.get(language, ()):
        match = shape.pattern.match(line) if shape.needs in line else None
        if match and _fits(shape, match.groupdict(), lines, at, around):
            return Definition(_label(match.groupdict(), shape.container), shape.container)
    return None


def _fits(
    shape: Shape, groups: dict[str, str | None], lines: list[str], at: int, around: str
) -> bool:
    if shape.before and not (at and shape.before.match(lines[at - 1])):
        return False
    if shape.after and not (at + 1 < len(lines) and shape.after.match(lines[at + 1])):
        return False
    if (name := groups.get("type")) and not _constructs(name, around):
        return False
    if groups.get("open") and shape.closing:
        return _closes(shape.closing, lines, at)
    return True


def _constructs(name: str, around: str) -> bool:
    """Tells whether a function of this name makes or ends values of its class."""
    *outer, last = re.split(r"::", name.replace("~", ""))
    return last == outer[-1] if outer else last.split(".")[0] == around


def _closes(closing: re.Pattern[str], lines: list[str], at: int) -> bool:
    """Tells whether the line that closes what this one opens looks so."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for line in lines[at + 1 : at + _MOST_LINES]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return closing.match(line) is not None
    return False


def _label(groups: dict[str, str | None], container: bool) -> str:
    if selector := groups.get("selector"):
        parts = _SELECTOR.findall(_TYPES.sub("", selector))
        return "".join(parts) or selector.split()[0]
    if value := groups.get("value"):
        return value
    name = (groups.get("name") or groups.get("type") or "").strip().strip("`'\"")
    if name.startswith("(") and name.endswith(")"):
        name = name[1:-1].strip()
    word = " ".join((groups.get("word") or ("class" if container else "")).split())
    return f"{word} {name}".strip() if word else f"{name}()"
