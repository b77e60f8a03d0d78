"""Front matter: what is title, tag, metadata or text, and what of it YAML refuses."""

from __future__ import annotations

import pytest
import yaml

from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.formats import parse
from kbproc.engine.sources.parse.front_matter import core_scalar


def read(head: str, body: str = "Body.") -> Parsed:
    return parse(f"---\n{head}\n---\n{body}".encode(), "markdown", "a.md")


def searched(head: str) -> list[str]:
    """The blocks before the body."""
    blocks = read(head).blocks
    assert blocks[-1].text == "Body."
    return [block.text for block in blocks[:-1]]


@pytest.mark.parametrize(
    "title",
    [
        "Harbour plan: phase two",
        "@ann on tides",
        "`code` first",
        "%d things",
        '"Quick" start guide',
        "'Twas: so",
        "[Draft] Harbour plan",
        "{curly} plan",
        "*Star* wars",
        "!important note",
        "&co founders",
        "- dash first",
        "> quoted first",
        "| bar first",
        "1984",
        "007",
        "1.10",
        "12:30",
        "Yes",
        "no",
        "true",
        "2024-05-06",
        "1e3",
        "0x1F",
        "Fix issue #5 in C#",
        "#1 best: ever",
        "#1 best",
        "a, b",
        "http://x/y: z",
    ],
)
def test_a_title_is_as_it_is_written(title: str) -> None:
    for head in (f"title: {title}\ntags: [a, b]", f"tags: [a, b]\nTitle: {title}  "):
        parsed = read(head)
        assert (parsed.title, parsed.tags) == (title, ["a", "b"])
        assert parsed.blocks == [Block(text="Body.", line=5)]
        assert parsed.unread == ({"refused_heads": 1} if is_refused(head) else {})


def is_refused(head: str) -> bool:
    """True if YAML finds no mapping in the head."""
    try:
        return not isinstance(yaml.compose(head), yaml.MappingNode)
    except yaml.YAMLError:
        return True


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("title: 'It''s: so'", "It's: so"),
        ('title: "A \\"b\\""', 'A "b"'),
        ("title: >\n  Two\n  lines", "Two lines"),
        ("title: Two\n  lines", "Two lines"),
        ("title: Plan # of the harbour", "Plan"),
        ("title:\tTab", "Tab"),
        ("title:", None),
        ("title: ~", None),
        ("title: ''", None),
        ("x: @\ntitle: 'It''s: so'", "It's: so"),
        ('x: @\ntitle: "A \\"b\\""', 'A "b"'),
        ("x: @\ntitle: >-\n  Two\n  lines", "Two lines"),
        ("x: @\ntitle: Two\n  lines", "Two lines"),
        ("x: @\ntitle: Plan # of the harbour", "Plan"),
        ("x: @\n\ttitle: Tab", "Tab"),
        ("x: @\ntitle:Plan", "Plan"),
    ],
)
def test_titles(head: str, title: str | None) -> None:
    assert read(head).title == title


@pytest.mark.parametrize(
    ("written", "tags"),
    [
        (" [no, 007, 1.10, 12:30, Yes, null]", ["no", "007", "1.10", "12:30", "Yes", "null"]),
        (
            "\n  - on\n  - 1_0\n  - '#work'\n  - #home\n  - a/b",
            ["on", "1_0", "work", "home", "a/b"],
        ),
        (" foo, two words; #bar", ["foo", "two words", "bar"]),
        (" foo bar", ["foo", "bar"]),
        (" #foo #bar", ["foo", "bar"]),
        (" 2024", ["2024"]),
        (" [[a, b], c]", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_tags_are_as_they_are_written(written: str, tags: list[str]) -> None:
    for head in (f"tags:{written}\nx: 1", f"Tag:{written}"):
        assert read(head).tags == tags


@pytest.mark.parametrize(
    "written",
    ["\n\t- no\n\t- b c", "\n- no\n- b c", " [no, 'b c']", " [no,\n  b c]", "\n  - no\n  - 'b c'"],
)
def test_tags_where_yaml_refuses_the_head(written: str) -> None:
    parsed = read(f"title: a: b\ntags:{written}\nx: %")
    assert (parsed.title, parsed.tags, parsed.metadata) == ("a: b", ["no", "b c"], {"x": "%"})
    assert [block.text for block in parsed.blocks] == ["Body."]


def test_core_schema() -> None:
    for written in (
        "no",
        "Yes",
        "on",
        "007",
        "1.10",
        "12:30",
        "0o17",
        "0x1F",
        "1e3",
        "+1",
        "1_000",
    ):
        assert core_scalar(written) == written
    assert core_scalar("9" * 30) == "9" * 30
    assert [core_scalar(w) for w in ("true", "False", "12", "-3", "2.5", "~", "null", "")] == [
        True,
        False,
        12,
        -3,
        2.5,
        None,
        None,
        None,
    ]


def test_metadata_keeps_what_is_no_text() -> None:
    parsed = read(
        "layout: post\nversion: 1.10\nid: 007\nat: 12:30\ndate: 2024-05-06 10:00\ndraft: no\nn: 4\n"
        "done: true\nquoted: '4'\nempty:"
    )
    assert parsed.metadata == {
        "layout": "post",
        "version": "1.10",
        "id": "007",
        "at": "12:30",
        "date": "2024-05-06 10:00",
        "draft": "no",
        "n": 4,
        "done": True,
        "quoted": "4",
        "empty": None,
    }
    assert [block.text for block in parsed.blocks] == ["Body."]
    assert parsed.unread == {}


def test_words_are_searched_where_they_stand() -> None:
    parsed = read(
        "title: T\naliases: [Falke, X]\ndescription: >\n  About\n  falcons.\nlayout: post\n"
        "to: Ben\nfrom: Ann Smith\nre: Budget\nauthor: Cy Dee\ncategories:\n"
        "  - git\nkeywords: a\nyear: 2024"
    )
    assert parsed.blocks == [
        Block(text="aliases: Falke, X\ndescription: About falcons.", line=3),
        Block(text="to: Ben\nfrom: Ann Smith\nre: Budget\nauthor: Cy Dee\ncategories: git", line=8),
        Block(text="keywords: a", line=14),
        Block(text="Body.", line=17),
    ]
    assert parsed.metadata["author"] == "Cy Dee"


def test_nested_words_are_searched_and_the_rest_is_counted() -> None:
    head = (
        "author:\n  name: Ann Smith\n  mail: a@b.org\nsizes: [1, 2]\n"
        "team:\n  - who: Ben\n  - who: Cy"
    )
    parsed = read(head)
    assert searched(head) == [
        "author: name: Ann Smith, mail: a@b.org",
        "team: who: Ben, who: Cy",
    ]
    assert parsed.unread == {"fields": 1}


def test_a_line_that_is_no_field_stays_text() -> None:
    head = "title: a: b\nsummary: c: d\n(loose words)\nopen: [1"
    assert searched(head) == ["summary: c: d\n(loose words)\nopen: [1"]
    assert read(head).title == "a: b"


@pytest.mark.parametrize(
    "head",
    [
        "just words",
        "Words: here: too\n\n# A heading\n\nmore",
        "# A heading",
        "one\ntwo: x: y\nthree",
    ],
)
def test_text_between_two_rules_is_no_head(head: str) -> None:
    parsed = read(head)
    assert parsed.metadata == {}
    text = "\n".join(block.text for block in parsed.blocks)
    assert all(word in text for word in head.replace("#", "").split())


@pytest.mark.parametrize(
    ("head", "texts"),
    [
        ("title: Owls", ["Owls"]),
        ("title: Owls\ntags: [a, b]\nlayout: post", ["Owls\ntags: a, b\nlayout: post"]),
        ("title: a: b\nx: [1, 2]", ["a: b\nx: 1, 2"]),
        ("", []),
    ],
)
def test_a_note_that_is_only_a_head(head: str, texts: list[str]) -> None:
    for body in ("", "\n<!-- nothing -->\n"):
        parsed = read(head, body)
        assert [block.text for block in parsed.blocks] == texts


def test_aliases_of_yaml_are_read_within_limits() -> None:
    parsed = read(f"a: &a {'long words ' * 1000}\nb: [{'*a, ' * 5000}]\nc: *a\nd: &d [*d, word]")
    assert sum(len(block.text) for block in parsed.blocks) < 100_000
    assert parsed.unread["fields"] >= 1
    assert searched("a: &name Ann Smith\nb: *name") == ["a: Ann Smith\nb: Ann Smith"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "a: &a [*a, ", "\t"])
def test_hostile_heads(opening: str) -> None:
    assert read("a: " + opening * 20_000).blocks[-1].text.endswith("Body.")


def test_toml() -> None:
    text = (
        '+++\ntitle = "T"\ntags = ["a", 7]\nversion = 1.10\ndate = 2024-05-06\nat = 12:30:00\n'
        'description = "Of owls"\ndraft = true\n[params]\nauthor = "Ann Smith"\n+++\nBody.'
    )
    parsed = parse(text.encode(), "markdown", "a.md")
    assert (parsed.title, parsed.tags) == ("T", ["a", "7"])
    assert parsed.metadata == {
        "version": "1.10",
        "date": "2024-05-06",
        "at": "12:30:00",
        "description": "Of owls",
        "draft": True,
    }
    assert parsed.blocks == [
        Block(text="description: Of owls", line=7),
        Block(text="params: author: Ann Smith", line=9),
        Block(text="Body.", line=12),
    ]


def test_toml_that_is_refused() -> None:
    text = '+++\ntitle = Harbour plan\ntags = ["a", "b"]\nn = 1\n+++\nBody.'
    parsed = parse(text.encode(), "markdown", "a.md")
    assert (parsed.title, parsed.tags, parsed.metadata) == ("Harbour plan", ["a", "b"], {"n": 1})


def test_json() -> None:
    text = '{\n  "title": "T",\n  "tags": ["a"],\n  "summary": "Of owls",\n  "n": 1.50\n}\n\nBody.'
    parsed = parse(text.encode(), "markdown", "a.md")
    assert (parsed.title, parsed.tags) == ("T", ["a"])
    assert parsed.metadata == {"summary": "Of owls", "n": "1.50"}
    assert parsed.blocks == [
        Block(text="summary: Of owls", line=4),
        Block(text="Body.", line=8),
    ]
    assert parse(b"{: .note}\nBody.", "markdown", "a.md").blocks[0].text == "{: .note}\nBody."


def test_a_memo_without_fences_is_text() -> None:
    parsed = parse(b"To: Ann\nFrom: Ben\nSubject: Owls\n\nBody.", "markdown", "a.md")
    assert [block.text for block in parsed.blocks] == ["To: Ann\nFrom: Ben\nSubject: Owls", "Body."]


def test_lines_between_a_key_and_its_list_stay() -> None:
    parsed = read("x: @\nkey:\n  lostword here\n  - bar baz")
    assert "lostword here" in "\n".join(block.text for block in parsed.blocks)


def test_a_name_on_several_lines_has_none() -> None:
    data = b'{"a": {"summary": 1},\n"b": 1,\n"summary": "Of owls"}\n\nBody.\n'
    [block] = [b for b in parse(data, "markdown", "a.md").blocks if "Of owls" in b.text]
    assert block.line is None


def test_an_endless_number_in_toml_loses_no_file() -> None:
    data = b"+++\nn = 0x" + b"f" * 5000 + b"\ntitle = 'Owls'\n+++\nBody.\n"
    assert parse(data, "markdown", "a.md").title == "Owls"
