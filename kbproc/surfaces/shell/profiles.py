"""`kbproc profile …`, `link` and `unlink`.

Owns: what they take, and their answers.
Refuses to know: the files (settings/profiles.py), formats and help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.paths import absolute
from kbproc.base.values import SLUG, published
from kbproc.settings import config as settings
from kbproc.settings import profiles, toml
from kbproc.settings.config import DEFAULT, Config
from kbproc.settings.profiles import Link
from kbproc.settings.trust import Trust
from kbproc.shell.arguments import Options, Parsed, usage_error
from kbproc.store.folder import is_store, leads_to, require_store

Result = dict[str, Any]
_FLAGS = {
    "store": ("--store",),
    "kb": ("--kb",),
    "format": ("--format",),
    "agent": ("--agent",),
    "log_level": ("--log-level",),
}
# What `profile list` shows of each, the more telling first.
_SHOWN = ("store", "kb", "agent", "format", "log_level")


def save(parsed: Parsed, options: Options) -> Result:
    name = _name_given(parsed, "profile save", "NAME")
    if not profiles.is_name(name):
        raise usage_error(
            f"{name!r} is no name for a profile: 2 to 64 lower-case letters, digits and hyphens.",
            "NAME",
            detail={"pattern": published(SLUG)},
        )
    kept = _flags_given(parsed, options)
    if not kept:
        raise usage_error(
            "profile save needs a setting to keep.",
            "NAME",
            hint="Name it with --store, --kb, --agent, --format or --log-level.",
        )
    replaced = profiles.save(_file(), name, kept, dry_run=options.dry_run)
    hint = f"kbproc profile use {name} makes it the one that is meant where none is named."
    data = {"name": name, **kept, "replaced": replaced, "file": str(_file())}
    return _result("save", data, options, hint=None if options.config.profile == name else hint)


def use(parsed: Parsed, options: Options) -> Result:
    if parsed.last("--none"):
        _name_given(parsed, "profile use --none", "")
        name = None
    else:
        name = _name_given(parsed, "profile use", "NAME")
    before = profiles.use(_file(), name, dry_run=options.dry_run)
    notice = None
    if options.config.origins.get("profile", DEFAULT).level == "environment":
        notice = "KBPROC_PROFILE is set and comes first."
    data = {"in_use": name, "before": before, "file": str(_file())}
    return _result("use", data, options, notice=notice)


def delete(parsed: Parsed, options: Options) -> Result:
    name = _name_given(parsed, "profile delete", "NAME")
    was_in_use = profiles.delete(_file(), name, dry_run=options.dry_run)
    data = {"name": name, "was_in_use": was_in_use, "file": str(_file())}
    return _result("delete", data, options)


def listed(parsed: Parsed, options: Options) -> Result:
    _name_given(parsed, "profile list", "")
    known = profiles.read(_file())
    rows = [
        {"name": name, "in_use": name == options.config.profile}
        | {key: kept.get(key) for key in _SHOWN}
        for name, kept in sorted(known.named.items())
    ]
    return _result("list", rows, options)


def show(parsed: Parsed, options: Options) -> Result:
    """Of a profile its settings; without a name every setting in effect, and what settled it."""
    if not parsed.positionals:
        return _result("show", list(_in_effect(options)), options)
    name = _name_given(parsed, "profile show", "[NAME]")
    kept = profiles.read(_file()).get(name)
    rows = [
        {"setting": key, "value": value, "from": "profile", "which": name}
        for key, value in kept.items()
    ]
    return _result("show", rows, options)


def _in_effect(options: Options) -> Iterable[dict[str, Any]]:
    config = options.bound
    values = {
        "profile": config.profile,
        "store": str(config.store),
        "kb": config.kb,
        "format": options.format or config.format,
        "agent": config.actor,
        "log_level": config.log_level,
    }
    for key, value in values.items():
        origin = config.origins.get(key, DEFAULT)
        yield {"setting": key, "value": value, "from": origin.level, "which": origin.name}


def link(parsed: Parsed, options: Options) -> Result:
    folder = _folder(parsed, "link")
    if parsed.last("--trust"):
        return _trusted(folder, parsed, options)
    kept = _binding(options.bound)
    _check(kept)
    created = bool(parsed.last("--create")) and _made(kept, options)
    before = profiles.link(folder, kept, _trust(), dry_run=options.dry_run)
    data = {
        **kept,
        "replaced": before is not None,
        "created": created,
        "file": str(folder / profiles.LINK),
    }
    there = created or is_store(Path(kept["store"]))
    hint = None if there else "There is no store there yet: kbproc link --create makes it."
    return _result("link", data, options, hint=hint, notice=_overruled())


def _trusted(folder: Path, parsed: Parsed, options: Options) -> Result:
    """The nearest link at or above the folder is used from now on, as it stands now."""
    if parsed.last("--store"):
        named = options.bound.store
        require_store(named)
        return _trusted_store(named, None, options)
    found = profiles.nearest_link(folder)
    if not options.dry_run:
        _trust().add_link(found.path, found.data)
    store = Path(found.settings.get("store") or options.config.store)
    return _trusted_store(store, found, options)


def _trusted_store(store: Path, found: Link | None, options: Options) -> Result:
    """The models and endpoints that the store's settings name may be used, as they are now."""
    file = toml.read(store / "store.toml")
    table = {} if file is None else file.table
    told = []
    approvals = {
        "model": _trust().add_model,
        "llm": _trust().add_llm,
        "rerank": _trust().add_reranker,
        "log": _trust().add_log,
    }
    for name, approve in approvals.items():
        said = table.get(name, {})
        if (named := ", ".join(said.get("servers", [])) or leads_to(said)) is None:
            continue
        if not options.dry_run:
            approve(store, said)
        is_sent = "url" in said or "servers" in said
        told.append(f"Texts may be sent to {named}." if is_sent else f"{named} may be run.")
    settled = {} if found is None else found.settings
    data = {"store": str(store), "kb": settled.get("kb"), "replaced": False, "created": False}
    data["file"] = None if found is None else str(found.path)
    if found is None and not told:
        told = ["The store names neither endpoint nor model: there was nothing to approve."]
    return _result("link", data, options, notice=" ".join(told) or None)


def _made(kept: dict[str, str], options: Options) -> bool:
    """Makes the store and the knowledge base; False if the latter was there."""
    from kbproc.shell.run import ask

    store = Path(kept["store"])
    if options.dry_run and not is_store(store):
        return True
    config = msgspec.structs.replace(options.config, store=store)
    try:
        ask("kb.create", {"slug": kept["kb"], "dry_run": options.dry_run}, config)
    except KbprocError as error:
        if error.type != "resource.already_exists" or error.field != "$.params.slug":
            raise
        return False
    return True


def _overruled() -> str | None:
    """Variables that come before what a link says."""
    env = settings.environment()
    names = [settings.ENVIRONMENT[key] for key in profiles.LINKED]
    set_ones = [name for name in names if env.get(name)]
    if not set_ones:
        return None
    be, come = ("is", "comes") if len(set_ones) == 1 else ("are", "come")
    return f"{' and '.join(set_ones)} {be} set and {come} first: the link counts without."


def unlink(parsed: Parsed, options: Options) -> Result:
    folder = _folder(parsed, "unlink")
    bound = profiles.unlink(folder, _trust(), dry_run=options.dry_run)
    data = {key: bound.settings.get(key) for key in profiles.LINKED}
    return _result("unlink", {**data, "file": str(bound.path)}, options)


COMMANDS: dict[str, Callable[[Parsed, Options], Result]] = {
    "profile save": save,
    "profile use": use,
    "profile list": listed,
    "profile show": show,
    "profile delete": delete,
    "link": link,
    "unlink": unlink,
}


# ----------------------------------------------------------------------- parts


def _file() -> Path:
    return settings.profiles_file(settings.environment())


def _trust() -> Trust:
    return settings.trust_of(settings.environment())


def _name_given(parsed: Parsed, command: str, name: str) -> str:
    """The one word after a command, none if `name` is empty.

    Raises input.invalid_params for more words or fewer.
    """
    given = parsed.positionals
    wanted = 1 if name else 0
    if len(given) > wanted:
        takes = f"takes {name}" if name else "takes no name"
        raise usage_error(f"kbproc {command} {takes}; {given[wanted]!r} is one too many.", "NAME")
    if len(given) < wanted:
        raise usage_error(
            f"kbproc {command} needs a name.", "NAME", hint="See kbproc profile list."
        )
    return given[0] if given else ""


def _flags_given(parsed: Parsed, options: Options) -> dict[str, str]:
    """What a profile is to keep: what flags say, checked; not what is in effect anyway."""
    kept: dict[str, str] = {}
    for key, flags in _FLAGS.items():
        given = next((parsed.last(flag) for flag in flags if flag in parsed.given), None)
        if given is not None:
            kept[key] = given
    if kept.get("store"):
        kept["store"] = str(options.config.store)
    if "format" in kept:
        kept["format"] = settings.parse_format(kept["format"])
    if "log_level" in kept:
        kept["log_level"] = options.config.log_level
    _check(kept)
    return kept


def _check(kept: dict[str, str]) -> None:
    for key, value in kept.items():
        if (wrong := profiles.complaint(key, value)) is not None:
            raise usage_error(wrong, _FLAGS[key][0])


def _binding(config: Config) -> dict[str, str]:
    return {"store": str(config.store), "kb": config.kb}


def _folder(parsed: Parsed, command: str) -> Path:
    """Raises resource.not_found."""
    given = parsed.positionals
    if len(given) > 1:
        raise usage_error(
            f"kbproc {command} takes [FOLDER]; {given[1]!r} is one too many.", "FOLDER"
        )
    folder = absolute(given[0] if given else ".", field="FOLDER")
    if not folder.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {folder}.",
            field="FOLDER",
            hint="Name a folder that exists.",
        )
    return folder


def _result(
    what: str, data: Any, options: Options, *, hint: str | None = None, notice: str | None = None
) -> Result:
    kind = what if what in {"link", "unlink"} else f"profile.{what}"
    meta: dict[str, Any] = {"schema": f"{kind}/1"}
    if isinstance(data, list):
        meta["count"] = len(data)
    notices = [] if notice is None else [notice]
    if options.dry_run:
        meta["dry_run"] = True
        notices.append("Nothing was written: this was a dry run.")
    if hint is not None and not options.dry_run:
        meta["hint"] = hint
    if notices:
        meta["notice"] = notices
    return {"data": data, "meta": meta}
