"""Help pages and completion scripts say what a method's declaration says of its flags."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.settings.config import Config
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.reply import Reply
from kbproc.surfaces.shell.completion import SHELLS, script
from kbproc.surfaces.shell.help import page


class Sort(DestructiveParams, kw_only=True, frozen=True):
    names: Annotated[list[str], Meta(max_length=5, description="what to sort")]
    order: Annotated[Literal["up", "down"], Meta(description="which way")] = "up"
    most: Annotated[int, Meta(ge=1, le=9, description="how many")] = 3
    deep: Annotated[bool, Meta(description="folders, too")] = True
    kb: Annotated[str, Meta(description="where it's kept")] = "default"


@method(
    "shelf.sort",
    params=Sort,
    result=Any,
    summary="Sort a shelf's books.",
    when_to_use="When nothing can be found any more.",
    examples=[Example(params={"names": ["a b"]}, what="one name", exit=5)],
    kind="destructive",
    scope="admin",
    alias="tidy",
    positional=["names"],
    errors=["resource.not_found"],
)
def sort(call: Call, params: Sort) -> Reply:
    return Reply(data=None)


REGISTRY: Any = Registry.of(sys.modules[__name__])
PEOPLE = Config(store=Path("/kb"), cache=Path("/cache"))
AGENTS = Config(store=Path("/kb"), cache=Path("/cache"), agent_help=True, profile_names=("work",))


def section(text: str, title: str) -> list[str]:
    """Returns the lines below a title, up to the next empty line, with single spaces."""
    lines = text.partition(f"\n{title}\n")[2].partition("\n\n")[0].splitlines()
    return [" ".join(line.split()) for line in lines]


def test_a_methods_page_shows_usage_flags_limits_and_errors() -> None:
    text = page(REGISTRY, ["shelf", "sort", "--help"], PEOPLE)
    assert text.startswith("Risk: shelf.sort (destructive)\n\n")
    assert "kbproc shelf sort: Sort a shelf's books.\n\nWhen nothing can be found" in text
    assert "Usage: kbproc shelf sort NAMES … [FLAGS]" in text
    assert "kbproc tidy NAMES … [FLAGS]" in text
    assert section(text, "Arguments") == ["NAMES what to sort; at most 5 of them; required"]
    flags = section(text, "Flags")
    assert "--order up|down which way; up if left out" in flags
    assert "--most N how many; 1 to 9; 3 if left out" in flags
    assert "--[no-]deep folders, too; true if left out" in flags
    assert section(text, "Examples") == ["# one name (exit 5)", "kbproc shelf sort 'a b'"]
    errors = " ".join(section(text, "Errors (exit code)"))
    assert "resource.not_found (5)" in errors and "resource.plan_stale (" in errors
    assert page(REGISTRY, ["tidy"], PEOPLE) == text


def test_a_nouns_page_lists_its_commands() -> None:
    assert page(REGISTRY, ["shelf"], PEOPLE) == (
        "Usage: kbproc shelf COMMAND [ARGUMENTS] [FLAGS]\n\n"
        "  shelf sort (tidy)      Sort a shelf's books.\n"
    )
    profile = page(REGISTRY, ["profile"], PEOPLE)
    assert "  profile list           List the profiles.\n" in profile
    assert "\nExamples\n  kbproc profile save work" in profile


def test_an_own_commands_page_has_its_flags_and_examples() -> None:
    text = page(REGISTRY, ["profile", "use"], PEOPLE)
    assert text.startswith(
        "kbproc profile use: Choose the profile for when none is named.\n\n"
        "Usage: kbproc profile use NAME | --none\n"
    )
    assert section(text, "Flags") == ["--none choose no profile any more"]
    assert section(text, "Examples")[0] == "kbproc profile use work"


def test_an_errors_page_says_its_exit_code() -> None:
    text = page(REGISTRY, ["resource.not_found"], PEOPLE)
    assert text.startswith("resource.not_found: ")
    assert "\n\nExit 5: " in text


def test_the_overview_groups_methods_by_noun_and_fits_80_columns() -> None:
    text = page(REGISTRY, ["--help"], PEOPLE)
    assert "\n\nShelf\n  shelf sort (tidy)      Sort a shelf's books.\n" in text
    assert "\n\nShell\n  call                   Send one request" in text
    assert max(map(len, text.splitlines())) <= 80


def test_agents_get_the_same_as_json() -> None:
    whole = json.loads(page(REGISTRY, [], AGENTS))
    assert whole["profiles"] == ["work"]
    assert whole["commands"]["call"] == "Send one request to any method."
    (line,) = json.loads(page(REGISTRY, ["shelf"], AGENTS))
    assert line["name"] == "shelf.sort"
    own = json.loads(page(REGISTRY, ["profile", "use"], AGENTS))
    assert own["usage"] == "kbproc profile use NAME | --none"
    assert own["flags"]["--none"] == "choose no profile any more"
    assert json.loads(page(REGISTRY, ["shelf", "sort"], AGENTS))["name"] == "shelf.sort"


def test_an_unknown_command_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(KbprocError) as error:
        page(REGISTRY, ["shelf", "sorte"], PEOPLE)
    assert error.value.type == "input.unknown_method"


# ------------------------------------------------------------------- completion


def test_a_script_knows_commands_flags_and_where_names_come_from() -> None:
    text = script(REGISTRY, "bash")
    assert text.endswith("\n") and not text.endswith("\n\n")
    bare = text.replace("'", "")  # versions of shtab quote differently
    assert "_shelf_sort_option_strings=(--names --order --most --deep --no-deep --kb " in bare
    assert "_shelf_sort___order_choices=(up down)\n" in bare
    assert "_call_pos_0_choices=(shelf.sort)\n" in bare
    assert "kbproc kb list --limit 1000 --jq" in text


def test_zsh_asks_for_names_only_when_they_are_needed() -> None:
    text = script(REGISTRY, "zsh")
    assert '_kbproc_kb_list() { compadd -- ${(f)"$(kbproc kb list --limit 1000' in text
    assert "where its kept" in text, "quotes are left out"


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(KbprocError) as error:
        script(REGISTRY, "tcsh")
    assert (error.value.type, error.value.field) == ("input.invalid_params", "completion")
    assert error.value.message == "There is no completion for 'tcsh'."
    assert error.value.valid_values == list(SHELLS)
