"""Reads the form fields and notes of a PDF's pages, and counts the files attached to it.

A form's field becomes a line "Name: value".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kbproc.engine.sources.parse.blocks import clean_text
from kbproc.engine.sources.parse.fonts import damages

if TYPE_CHECKING:
    from pypdf import PdfReader

_MOST_ANNOTATIONS = 10_000
_DEEPEST = 20
_HIDDEN, _NO_VIEW = 1 << 1, 1 << 5
_PASSWORD, _PUSH_BUTTON = 1 << 13, 1 << 16
_FILES = frozenset({"/FileAttachment"})
_OBJECTS = frozenset({"/RichMedia", "/Screen", "/Movie", "/Sound", "/3D"})
# The text of these stands elsewhere, or means nothing to a reader.
_SILENT = frozenset({"/Popup", "/Link", "/PrinterMark", "/TrapNet", "/Watermark", "/Widget"})


class Annotations:
    """Reads the fields and notes of pages; `unread` counts by kind those that are left out."""

    def __init__(self) -> None:
        self.unread: Counter[str] = Counter()
        self._budget = _MOST_ANNOTATIONS

    def lines(self, page: Any) -> list[str]:
        """Returns the fields and notes of one page, without those that can't be read."""
        try:
            annotations = page.get("/Annots")
            annotations = annotations.get_object() if annotations is not None else None
        except damages():
            return []
        if not isinstance(annotations, list):
            return []
        lines: list[str] = []
        fields: set[int] = set()
        readable = annotations[: self._budget]
        self._budget -= len(readable)
        if beyond := len(annotations) - len(readable):
            self.unread["annotations"] += beyond
        for reference in readable:
            try:
                lines += self._read(reference.get_object(), page, fields)
            except damages():
                self.unread["annotations"] += 1
        return [line for line in map(str.strip, map(clean_text, lines)) if line]

    def _read(self, annotation: Any, page: Any, fields: set[int]) -> list[str]:
        kind = annotation.get("/Subtype")
        if _flags(annotation, "/F") & (_HIDDEN | _NO_VIEW):
            self._count_hidden(annotation, kind)
            return []
        if kind == "/Widget":
            return self._field(annotation, page, fields)
        if kind in _FILES:
            self.unread["embedded_files"] += 1
        elif kind in _OBJECTS:
            self.unread["objects"] += 1
        if kind in _SILENT:
            return []
        text = _string(annotation.get("/Contents"))
        if kind == "/FreeText":
            return [text or _appearance(annotation, page)]
        if kind == "/Stamp":
            return [_appearance(annotation, page) or (f"Note: {text}" if text else "")]
        return [f"Note: {text}"] if text else []

    def _count_hidden(self, annotation: Any, kind: Any) -> None:
        text = _inherited(annotation, "/V") if kind == "/Widget" else annotation.get("/Contents")
        off = isinstance(text, str) and text in ("", "/Off")
        if text is not None and not off and kind not in _SILENT - {"/Widget"}:
            self.unread["hidden_passages"] += 1

    def _field(self, widget: Any, page: Any, fields: set[int]) -> list[str]:
        kind, flags = _inherited(widget, "/FT"), _inherited(widget, "/Ff")
        flags = flags if isinstance(flags, int) else 0
        if kind == "/Btn" and flags & _PUSH_BUTTON:
            return []
        if kind == "/Sig":
            return [_appearance(widget, page)] if _inherited(widget, "/V") else []
        # Several widgets may show one field: its value is read once on a page.
        owner = id(_owner(widget))
        if owner in fields:
            return []
        value = _choice(widget) if kind == "/Btn" else _value(widget)
        if not value:
            return []
        fields.add(owner)
        if flags & _PASSWORD and kind == "/Tx":
            self.unread["hidden_passages"] += 1
            return []
        name = _name(widget)
        return [f"{name}: {value}" if name else value]


def embedded_files(reader: PdfReader) -> int:
    """Returns the number of files that are attached to a PDF as a whole."""
    try:
        names = reader.root_object.get("/Names")
        tree = names.get_object().get("/EmbeddedFiles") if names is not None else None
        return _leaves(tree) if tree is not None else 0
    except damages():
        return 0


def _leaves(tree: Any) -> int:
    """Returns the number of entries of a name tree."""
    count, stack, nodes = 0, [tree], 0
    while stack and nodes < _MOST_ANNOTATIONS:
        node = stack.pop().get_object()
        nodes += 1
        count += len(node.get("/Names", ())) // 2
        stack += node.get("/Kids", ())
    return count


def is_dynamic_form(reader: PdfReader) -> bool:
    """Returns True for a form in XFA alone, which a viewer lays out and no page holds."""
    try:
        form = reader.root_object.get("/AcroForm")
        form = form.get_object() if form is not None else {}
        fields = form.get("/Fields")
        return "/XFA" in form and not (fields.get_object() if fields is not None else ())
    except damages():
        return False


def _flags(annotation: Any, key: str) -> int:
    flags = annotation.get(key, 0)
    return flags if isinstance(flags, int) else 0


def _lineage(widget: Any) -> list[Any]:
    """Returns a widget and the fields above it."""
    nodes: list[Any] = []
    node = widget
    while node is not None and len(nodes) < _DEEPEST:
        node = node.get_object()
        nodes.append(node)
        node = node.get("/Parent")
    return nodes


def _inherited(widget: Any, key: str) -> Any:
    for node in _lineage(widget):
        if key in node:
            return node[key].get_object()
    return None


def _owner(widget: Any) -> Any:
    """Returns the node that names the field of this widget."""
    return next((node for node in _lineage(widget) if "/T" in node), widget)


def _name(widget: Any) -> str:
    """Returns the field's label for people, else its name in the file."""
    label = _string(_inherited(widget, "/TU"))
    if label:
        return label.rstrip(" :")
    names = [_string(node["/T"]) for node in _lineage(widget) if "/T" in node]
    return ".".join(filter(None, reversed(names))).rstrip(" :")


def _value(widget: Any) -> str:
    value = _inherited(widget, "/V")
    options = _inherited(widget, "/Opt")
    labels = {}
    for option in options if isinstance(options, list) else []:
        pair = option.get_object()
        if isinstance(pair, list) and len(pair) > 1:
            labels[_string(pair[0])] = _string(pair[1])
    values = value if isinstance(value, list) else [value]
    texts = [_string(item) for item in values]
    return ", ".join(labels.get(text, text) for text in texts if text)


def _choice(widget: Any) -> str:
    """Returns the choice of a check box or of radio buttons; "" without a choice."""
    state = _inherited(widget, "/V")
    if state is None:
        state = widget.get("/AS")
    text = "" if state is None else _string(state)
    if text in ("", "Off"):
        return ""
    options = _inherited(widget, "/Opt")
    if (
        isinstance(options, list)
        and text.isdecimal()
        and len(text) < 6
        and int(text) < len(options)
    ):
        return _string(options[int(text)]) or text
    return text


def _string(value: Any) -> str:
    """Returns the text of a string, name, number or stream."""
    from pypdf.generic import is_null_or_none

    value = value.get_object() if hasattr(value, "get_object") else value
    if is_null_or_none(value):
        return ""
    if hasattr(value, "get_data"):
        data = value.get_data()
        if data[:2] in (b"\xfe\xff", b"\xff\xfe"):
            return str(data.decode("utf-16", "replace"))
        return str(data.decode("utf-8", "replace"))
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (list, dict)):
        return ""
    text = str(value)
    is_name = type(value).__name__ == "NameObject"
    return (text.removeprefix("/") if is_name else text).strip()


def _appearance(annotation: Any, page: Any) -> str:
    """Returns the text that a viewer draws for an annotation."""
    looks = annotation["/AP"].get_object() if "/AP" in annotation else {}
    normal = looks["/N"].get_object() if "/N" in looks else None
    if normal is None or not hasattr(normal, "get_data"):
        return ""
    return " ".join(page.extract_xform_text(normal).split())
