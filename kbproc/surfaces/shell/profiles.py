"""Runs `kbproc profile …`, `link` and `unlink`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import environment
from kbproc.base.paths import existing_folder
from kbproc.base.purpose import purpose_of
from kbproc.base.settings import config as settings
from kbproc.base.settings import profiles, toml
from kbproc.base.settings.config import DEFAULT, Config
from kbproc.base.settings.profiles import Link
from kbproc.base.settings.trust import Trust
from kbproc.base.values import SLUG, published
from kbproc.engine.store.folder import FORMER, NEXT, is_store, leads_to, require_store
from kbproc.surfaces.shell.arguments import Options, ParsedArguments, usage_error

Result = dict[str, Any]
_FLAGS = {
    "store": ("--store",),
    "kb": ("--kb",),
    "format": ("--format",),
    "agent": ("--agent",),
    "log_level": ("--log-level",),
}
# The columns of `profile list`.
_COLUMNS = ("store", "kb", "agent", "format", "log_level")


def save(parsed: ParsedArguments, options: Options) -> Result:
    name = _name_argument(parsed, "profile save", "NAME")
    if not profiles.is_name(name):
        raise usage_error(
            f"{name!r} is no name for a profile: 2 to 64 lower-case letters, digits and hyphens.",
            "NAME",
            detail={"pattern": published(SLUG)},
        )
    chosen = _chosen_settings(parsed, options)
    if not chosen:
        raise usage_error(
            "profile save needs a setting to keep.",
            "NAME",
            hint="Name it with --store, --kb, --agent, --format or --log-level.",
        )
    replaced = profiles.save(_file(), name, chosen, dry_run=options.dry_run)
    hint = f"kbproc profile use {name} makes it the default profile."
    data = {"name": name, **chosen, "replaced": replaced, "file": str(_file())}
    return _result("save", data, options, hint=None if options.config.profile == name else hint)


def use(parsed: ParsedArguments, options: Options) -> Result:
    if parsed.last("--none"):
        _name_argument(parsed, "profile use --none", "")
        name = None
    else:
        name = _name_argument(parsed, "profile use", "NAME")
    before = profiles.use(_file(), name, dry_run=options.dry_run)
    notice = None
    if options.config.origins.get("profile", DEFAULT).level == "environment":
        notice = "KBPROC_PROFILE is set and comes first."
    data = {"in_use": name, "before": before, "file": str(_file())}
    return _result("use", data, options, notice=notice)


def delete(parsed: ParsedArguments, options: Options) -> Result:
    name = _name_argument(parsed, "profile delete", "NAME")
    was_in_use = profiles.delete(_file(), name, dry_run=options.dry_run)
    data = {"name": name, "was_in_use": was_in_use, "file": str(_file())}
    return _result("delete", data, options)


def list_profiles(parsed: ParsedArguments, options: Options) -> Result:
    _name_argument(parsed, "profile list", "")
    saved = profiles.read(_file())
    rows = [
        {"name": name, "in_use": name == options.config.profile}
        | {key: profile.get(key) for key in _COLUMNS}
        for name, profile in sorted(saved.named.items())
    ]
    return _result("list", rows, options)


def show(parsed: ParsedArguments, options: Options) -> Result:
    """Returns a profile's settings; without a name, each setting in effect and its origin."""
    if not parsed.positionals:
        return _result("show", list(_in_effect(options)), options)
    name = _name_argument(parsed, "profile show", "[NAME]")
    profile = profiles.read(_file()).get(name)
    rows = [
        {"setting": key, "value": value, "from": "profile", "which": name}
        for key, value in profile.items()
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


def link(parsed: ParsedArguments, options: Options) -> Result:
    folder = _folder(parsed, "link")
    if parsed.last("--trust"):
        return _trust_link(folder, parsed, options)
    binding = _binding(options.bound)
    _check(binding)
    created = bool(parsed.last("--create")) and _create(binding, folder, options)
    before = profiles.link(folder, binding, _trust(), dry_run=options.dry_run)
    data = {
        **binding,
        "replaced": before is not None,
        "created": created,
        "file": str(folder / profiles.LINK),
    }
    exists = created or is_store(Path(binding["store"]))
    hint = None if exists else "There is no store there yet: kbproc link --create makes it."
    return _result("link", data, options, hint=hint, notice=_overruled())


def _trust_link(folder: Path, parsed: ParsedArguments, options: Options) -> Result:
    """Approves the nearest link at or above the folder, with its present content."""
    if parsed.last("--store"):
        named = options.bound.store
        require_store(named)
        return _trust_store(named, None, options)
    nearest = profiles.nearest_link(folder)
    if not options.dry_run:
        _trust().add_link(nearest.path, nearest.data)
    store = Path(nearest.settings.get("store") or options.config.store)
    return _trust_store(store, nearest, options)


def _trust_store(store: Path, link: Link | None, options: Options) -> Result:
    """Approves the models and endpoints that the store's settings name at present."""
    file = toml.read(store / "store.toml")
    table = {} if file is None else file.table
    notices = []
    approvals = {
        FORMER: _trust().add_model,
        NEXT: _trust().add_model,
        "model": _trust().add_model,
        "llm": _trust().add_llm,
        "rerank": _trust().add_reranker,
        "log": _trust().add_log,
    }
    for name, approve in approvals.items():
        section = table.get(name, {})
        if (target := ", ".join(section.get("servers", [])) or leads_to(section)) is None:
            continue
        if not options.dry_run:
            approve(store, section)
        is_sent = "url" in section or "servers" in section
        notices.append(f"Texts may be sent to {target}." if is_sent else f"{target} may be run.")
    binding = {} if link is None else link.settings
    data = {"store": str(store), "kb": binding.get("kb"), "replaced": False, "created": False}
    data["file"] = None if link is None else str(link.path)
    if link is None and not notices:
        notices = ["The store names neither endpoint nor model: there was nothing to approve."]
    return _result("link", data, options, notice=" ".join(notices) or None)


def _create(binding: dict[str, str], folder: Path, options: Options) -> bool:
    """Makes the store and the knowledge base; returns false if the latter exists already.

    The knowledge base is for what the folder's README says.
    """
    from kbproc.surfaces.sharing.command import result_of

    store = Path(binding["store"])
    if options.dry_run and not is_store(store):
        return True
    config = msgspec.structs.replace(options.config, store=store)
    params = {"slug": binding["kb"], "description": purpose_of(folder)}
    try:
        result_of(config, "kb.create", {**params, "dry_run": options.dry_run})
    except KbprocError as error:
        if error.type != "resource.already_exists" or error.field != "$.params.slug":
            raise
        return False
    return True


def _overruled() -> str | None:
    """Returns a notice that names the variables set to override a link; None if none is set."""
    env = environment()
    names = [settings.ENVIRONMENT[key] for key in profiles.LINKED]
    variables = [name for name in names if env.get(name)]
    if not variables:
        return None
    be, come = ("is", "comes") if len(variables) == 1 else ("are", "come")
    return f"{' and '.join(variables)} {be} set and {come} first: the link counts without."


def unlink(parsed: ParsedArguments, options: Options) -> Result:
    folder = _folder(parsed, "unlink")
    bound = profiles.unlink(folder, _trust(), dry_run=options.dry_run)
    data = {key: bound.settings.get(key) for key in profiles.LINKED}
    return _result("unlink", {**data, "file": str(bound.path)}, options)


COMMANDS: dict[str, Callable[[ParsedArguments, Options], Result]] = {
    "profile save": save,
    "profile use": use,
    "profile list": list_profiles,
    "profile show": show,
    "profile delete": delete,
    "link": link,
    "unlink": unlink,
}


# ----------------------------------------------------------------------- parts


def _file() -> Path:
    return settings.profiles_file(environment())


def _trust() -> Trust:
    return settings.trust_of(environment())


def _name_argument(parsed: ParsedArguments, command: str, name: str) -> str:
    """Returns the one argument of a command; "" if `name` is empty and there is none.

    Raises input.invalid_params for more words or fewer.
    """
    words = parsed.positionals
    count = 1 if name else 0
    if len(words) > count:
        takes = f"takes {name}" if name else "takes no name"
        raise usage_error(f"kbproc {command} {takes}; {words[count]!r} is one too many.", "NAME")
    if len(words) < count:
        raise usage_error(
            f"kbproc {command} needs a name.", "NAME", hint="See kbproc profile list."
        )
    return words[0] if words else ""


def _chosen_settings(parsed: ParsedArguments, options: Options) -> dict[str, str]:
    """Returns the settings that flags set, checked; without those in effect for other reasons."""
    chosen: dict[str, str] = {}
    for key, flags in _FLAGS.items():
        value = next((parsed.last(flag) for flag in flags if flag in parsed.flags), None)
        if value is not None:
            chosen[key] = value
    if chosen.get("store"):
        chosen["store"] = str(options.config.store)
    if "format" in chosen:
        chosen["format"] = settings.parse_format(chosen["format"])
    if "log_level" in chosen:
        chosen["log_level"] = options.config.log_level
    _check(chosen)
    return chosen


def _check(chosen: dict[str, str]) -> None:
    for key, value in chosen.items():
        if (problem := profiles.complaint(key, value)) is not None:
            raise usage_error(problem, _FLAGS[key][0])


def _binding(config: Config) -> dict[str, str]:
    return {"store": str(config.store), "kb": config.kb}


def _folder(parsed: ParsedArguments, command: str) -> Path:
    """Returns the folder that the command names. Raises resource.not_found."""
    words = parsed.positionals
    if len(words) > 1:
        raise usage_error(
            f"kbproc {command} takes [FOLDER]; {words[1]!r} is one too many.", "FOLDER"
        )
    return existing_folder(words[0] if words else ".", field="FOLDER")


def _result(
    command: str, data: Any, options: Options, *, hint: str | None = None, notice: str | None = None
) -> Result:
    kind = command if command in {"link", "unlink"} else f"profile.{command}"
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
