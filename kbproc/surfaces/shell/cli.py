"""Runs the `kbproc` command, from arguments to an exit code.

A command asks a method or is one of the shell's own. Errors are printed in the format that
the command line asks for.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kbproc
from kbproc.base.errors import ERRORS, EXIT_CODES, KbprocError
from kbproc.base.host import environment
from kbproc.base.settings import config as settings
from kbproc.base.spared import import_for_a_command
from kbproc.base.suggest import closest, did_you_mean, ranked
from kbproc.methods.calls.flags import GLOBAL_FLAGS, SHELL_DEFAULTS, common_flags, flags_of
from kbproc.surfaces.shell.arguments import (
    Options,
    ParsedArguments,
    format_in,
    leading_flags,
    options_of,
    output_for,
    parse,
    refuse_meaningless,
    usage_error,
    value_in,
)
from kbproc.surfaces.shell.commands import (
    CONTRACT_COMMANDS,
    OWN_COMMANDS,
    PROFILE_COMMANDS,
    find_command,
    nouns,
    own_command,
)
from kbproc.surfaces.shell.printing.formats import Output, write

if TYPE_CHECKING:
    from kbproc.base.settings.config import Config
    from kbproc.contract.command import CommandAnswer
    from kbproc.methods.calls.flags import Described, Outline
    from kbproc.methods.calls.registry import Names, Registry

INTERRUPTED = 130
_HELP = frozenset({"-h", "--help"})
# Commands that read no store.
_STORELESS = frozenset(
    {"help", "version", "describe", "schema", "exit-codes", "completion", "contract", "docs"}
)


def main(argv: list[str], *, pipes: tuple[int, int] | None = None) -> int:
    """Runs one command; `pipes`: the wire's descriptors, if they were claimed already."""
    _speak_utf8()
    try:
        return _run(argv, pipes)
    except KeyboardInterrupt:
        return INTERRUPTED


def _speak_utf8() -> None:
    """Sets stdout and stderr to UTF-8, because JSON is UTF-8 in every locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _run(argv: list[str], pipes: tuple[int, int] | None) -> int:
    output = Output(sys.stdout, sys.stderr)
    try:
        if argv == ["--version"]:
            write(sys.stdout, f"kbproc {kbproc.__version__}\n")
            return 0
        _check_text(argv)
        format = format_in(argv)
        output = output_for(format, color=False)
        settings.check_platform()
        words = leading_flags(argv)[1]
        # The --profile of contract check names parts of the wire, not a person's settings.
        profile = None if words[:1] == ["contract"] else value_in(argv, "--profile")
        config = _settings(argv, words, profile)
        output = output_for(format or config.format, color=config.color)
        output.profile = config.profile
        if (
            words[:1] not in (["serve"], ["mcp"]) and "--trust" not in argv
        ):  # link --trust settles the notes
            for note in config.notes:
                output.note(note)
        return Shell(config, output, pipes).run(argv)
    except KbprocError as error:
        if error.valid_values:
            from kbproc.surfaces.shell.correction import correct

            correct(error, argv, _outlines())
        return _print_error(output, error)
    except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
        from kbproc.surfaces.wire.messages import unexpected

        return _print_error(output, unexpected(error))


def _check_text(argv: list[str]) -> None:
    for arg in argv:
        try:
            arg.encode()
        except UnicodeEncodeError:
            raise KbprocError(
                "input.invalid_params",
                f"The argument {arg!a} is not UTF-8.",
                hint="Rename the file, or name its folder instead.",
            ) from None


def _settings(argv: list[str], words: list[str], profile: str | None) -> Config:
    """Returns the settings, bare ones for help and the like if the settings are broken."""
    env = environment()
    asks_help = bool(_HELP & set(argv[: argv.index("--")] if "--" in argv else argv))
    storeless = asks_help or not words or words[0] in _STORELESS
    try:
        return settings.load(env, profile=profile, lenient=storeless or words[0] == "profile")
    except KbprocError:
        if storeless and profile is None:
            return settings.bare(env)
        raise


def _print_error(output: Output, error: KbprocError) -> int:
    from kbproc.surfaces.shell.run import data_of

    output.error(data_of(error))
    return error.row.exit


class Shell:
    """A runner of one command line, with the settings before its flags."""

    def __init__(self, config: Config, output: Output, pipes: tuple[int, int] | None) -> None:
        self._config = config
        self._output = output
        self._pipes = pipes

    def run(self, argv: list[str]) -> int:
        leading, words = leading_flags(argv)
        if "--version" in leading:
            return main(["--version"])
        parse("kbproc", GLOBAL_FLAGS, leading)
        if not words:
            return self.help([])
        own, rest = own_command(words)
        if own is not None:
            return _RUN[own.name](self, [*leading, *rest])
        return self._run_method(leading, words)

    def _run_method(self, leading: list[str], words: list[str]) -> int:
        from kbproc.methods.calls.flags import command_of
        from kbproc.surfaces.shell.params import params_of

        registry = _outlines()
        if _HELP & set(leading):
            return self.help(words)
        if words[0] in nouns(registry) and _HELP & set(words[1:2]):
            return self.help(words[:1])
        method, rest = find_command(registry, words)
        flags = [*common_flags(method), *flags_of(method)]
        parsed = parse(command_of(method), flags, [*leading, *rest])
        if parsed.last("--help"):
            return self.help(method.name.split("."))
        if parsed.last("--agents-md"):
            from kbproc.methods.calls.describe import agents_md

            return self._show(agents_md(registry))
        import_for_a_command()
        from kbproc.surfaces.shell.run import run  # heavy, so not for help or a wrong flag

        own = {flag.name for flag in flags_of(method) if flag.param}
        options = options_of(parsed, self._config, self._output, own)
        params = {**SHELL_DEFAULTS.get(method.name, {}), **params_of(method, parsed, _stdin)}
        if (page := self._help_words(method, params)) is not None:
            return self.help(page)
        return run(_registry(), method, params, options)

    def _help_words(self, method: Described, params: dict[str, Any]) -> list[str] | None:
        """Returns the words of the help page that replaces `describe` for a person, else None."""
        is_read = self._output.for_people and self._output.jq is None
        if method.name != "describe" or params.get("full") or not is_read:
            return None
        name = params.get("method")
        if name is None:
            return []
        return str(name).split(".") if name in _outlines().methods else None

    # --------------------------------------------------- commands that are no methods

    def call(self, args: list[str]) -> int:
        """Runs `kbproc call METHOD [JSON | key=value …] [-]`."""
        from kbproc.surfaces.shell.params import params_from_words

        parsed, options = self._parsed("call", args)
        if parsed.last("--help"):
            return self.help(parsed.positionals[:1] or ["call"])
        if not parsed.positionals:
            raise usage_error("call needs a method.", "call", hint="Try kbproc call ping.")
        method = _outlines().find(parsed.positionals[0])
        declared = {flag.name for flag in (*common_flags(method), *flags_of(method))}
        refuse_meaningless(f"kbproc call {method.name}", declared, parsed.flags)
        params = params_from_words(parsed.positionals[1:], _stdin)
        import_for_a_command()
        from kbproc.surfaces.shell.run import run

        return run(_registry(), method, params, options, typed=False)

    def serve(self, args: list[str]) -> int:
        """Runs `kbproc serve`; claims the wire before any heavy import."""
        from kbproc.base.pipes import claim

        parsed, options = self._parsed("serve", args)
        if parsed.last("--help"):
            return self.help(["serve"])
        max_line_bytes = _number(parsed, "--max-line-bytes")
        max_in_flight = _number(parsed, "--max-in-flight")
        pipes = self._pipes or claim()
        _log_notes(options.config)
        from kbproc.surfaces.sharing import serve

        serving = serve.Serving(
            config=options.bound,
            protocol=parsed.last("--protocol"),
            root=parsed.last("--root"),
            scopes=parsed.last("--scopes"),
            max_line_bytes=max_line_bytes,
            max_in_flight=max_in_flight,
            allow_private_addresses=bool(parsed.last("--allow-private-addresses")),
            thin=bool(parsed.last("--thin")),
            approve=parsed.last("--approve"),
        )
        return serve.run(serving, pipes)

    def mcp(self, args: list[str]) -> int:
        """Runs `kbproc mcp`: serves, or changes the settings of a program that starts servers."""
        parsed, options = self._parsed("mcp", args)
        if parsed.last("--help"):
            return self.help(["mcp"])
        _log_notes(options.config)
        if parsed.positionals or "--print-config" in parsed.flags:
            from kbproc.surfaces.setup import command

            words, agreed = parsed.positionals, bool(options.yes)
            return command.mcp(options.bound, words, parsed.flags, self._show, agreed=agreed)
        from kbproc.base.pipes import claim
        from kbproc.surfaces.mcp import serve

        offering = serve.Offering(
            config=options.bound,
            tools=parsed.last("--tools"),
            root=parsed.last("--root"),
            scopes=parsed.last("--scopes"),
            allow_private_addresses=bool(parsed.last("--allow-private-addresses")),
            approve=parsed.last("--approve"),
        )
        return serve.run(offering, self._pipes or claim())

    def hook(self, args: list[str]) -> int:
        """Runs `kbproc hook install`, `remove`, `report` and `forget`.

        Events have surfaces/hooks/run.py.
        """
        from kbproc.surfaces.setup import command

        parsed, options = self._parsed("hook", args)
        if parsed.last("--help"):
            return self.help(["hook"])
        if parsed.positionals in (["report"], ["forget"]):
            return self._counts(parsed.positionals[0], options.bound)
        agreed = bool(options.yes)
        words = parsed.positionals
        return command.hook(options.bound, words, parsed.flags, self._show, agreed=agreed)

    def _counts(self, verb: str, config: Config) -> int:
        """Runs `kbproc hook report` and `forget`."""
        from msgspec import to_builtins

        from kbproc.base.paths import working_folder
        from kbproc.surfaces.hooks import counting, worth

        if verb == "forget":
            data = {"deleted": counting.forget(config)}
        else:
            figures = counting.report(config, working_folder())
            if self._output.for_people and self._output.jq is None:
                return self._show(worth.for_people(figures))
            data = to_builtins(figures)
        self._output.result(None, {}, {"data": data, "meta": {"schema": "hooks/1"}})
        return 0

    def install_skill(self, args: list[str]) -> int:
        """Runs `kbproc skills install [CLIENT]`."""
        from kbproc.surfaces.setup import command

        parsed, options = self._parsed("skills install", args)
        if parsed.last("--help"):
            return self.help(["skills", "install"])
        return command.skill(parsed.positionals, self._show, agreed=bool(options.yes))

    def open(self, args: list[str]) -> int:
        """Runs `kbproc open` until a signal comes."""
        parsed, options = self._parsed("open", args)
        if parsed.last("--help"):
            return self.help(["open"])
        port = _number(parsed, "--port", command="open")
        from kbproc.engine.store.folder import require_store
        from kbproc.surfaces.page import run as page

        require_store(options.bound.store, named="store" in options.bound.origins)

        opening = page.PageOptions(
            config=options.bound,
            port=port,
            read_only=bool(parsed.last("--read-only")),
            starts_browser=not parsed.last("--no-browser"),
            scopes=parsed.last("--scopes"),
        )
        return page.run(opening, self._show_address)

    def follow(self, args: list[str]) -> int:
        """Runs `kbproc watch follow` until Ctrl-C: what the watched folders write."""
        parsed, options = self._parsed("watch follow", args)
        if parsed.last("--help"):
            return self.help(["watch", "follow"])
        if parsed.positionals:
            raise usage_error("watch follow takes no words, only flags.", "watch follow")
        from kbproc.engine.store.folder import require_store
        from kbproc.surfaces.shell.following import watching

        require_store(options.bound.store, named="store" in options.bound.origins)
        with watching(options.bound.store):
            if self._output.for_people:
                self.run(["watch", "list", *args])
            return self.run(["events", "subscribe", "--actor", "file", *args])

    def _show_address(self, address: str) -> int:
        """Prints the page's address for a person, or as one answer."""
        if self._output.for_people:
            notice = "Ctrl-C ends the page. The address opens it once."
            return self._show(f"{address}\n{notice}\n")
        data = {"data": {"address": address}, "meta": {"schema": "open/1"}}
        self._output.result(None, {}, data)
        return 0

    def start(self, args: list[str]) -> int:
        """Runs `kbproc start [FOLDER]`; returns 3 if a step failed."""
        from kbproc.base.paths import absolute
        from kbproc.surfaces.start import command

        parsed, options = self._parsed("start", args)
        if parsed.last("--help"):
            return self.help(["start"])
        if len(parsed.positionals) > 1:
            raise usage_error("start takes one folder.", "FOLDER")
        starting = command.StartOptions(
            config=options.bound,
            folder=absolute((parsed.positionals or ["."])[0], field="FOLDER"),
            left_out=frozenset(
                flag.name.removeprefix("--")
                for flag in OWN_COMMANDS["start"].flags
                if parsed.last(flag.name) is False
            ),
            agreed=bool(options.yes),
            dry_run=options.dry_run,
        )
        run = command.undo if parsed.last("--undo") else command.start
        outcome = run(starting, self._output, self._show)
        if not self._output.for_people:
            meta = {"schema": "start/1"}
            self._output.result(None, {}, {"data": outcome.data, "meta": meta})
        return outcome.code

    def profile(self, name: str, args: list[str]) -> int:
        """Runs `profile …`, `link`, `unlink`."""
        parsed, options = self._parsed(name, args)
        if parsed.last("--help"):
            return self.help(name.split())
        from kbproc.surfaces.shell.profiles import COMMANDS

        self._output.result(None, {}, COMMANDS[name](parsed, options))
        return 0

    def work(self, args: list[str]) -> int:
        """Runs `kbproc work SERVER…`."""
        parsed, options = self._parsed("work", args)
        if parsed.last("--help"):
            return self.help(["work"])
        from kbproc.engine.cluster.work.command import work

        data = work(parsed.positionals, parsed.last, options.config.cache, self._output.note)
        self._output.result(None, {}, {"data": data, "meta": {"schema": "work/1"}})
        return 0

    def evaluate(self, args: list[str]) -> int:
        """Runs `kbproc eval DIR`."""
        parsed, options = self._parsed("eval", args)
        if parsed.last("--help"):
            return self.help(["eval"])
        from kbproc.knowledge.search.evaluation import told
        from kbproc.surfaces.shell.evaluation.command import evaluate

        figures = evaluate(parsed, options, _registry())
        if options.output.for_people and options.output.jq is None:
            return self._show(told.for_people(figures))
        options.output.result(None, {}, {"data": figures, "meta": {"schema": "eval/1"}})
        return 0

    def contract(self, name: str, args: list[str]) -> int:
        """Runs `contract …`; returns 1 if a rule is broken, 2 if some rules could not be judged."""
        from kbproc.contract.kit import KitError

        parsed, _ = self._parsed(name, args)
        if parsed.last("--help"):
            return self.help(name.split())
        try:
            report = self._judged(name.split()[1], parsed)
        except KitError as error:
            near = did_you_mean(closest(error.typed, error.values))
            more = {"valid_values": ranked(error.typed, error.values)} if error.values else {}
            raise usage_error(str(error), name, hint=f"{near}{error.hint}", **more) from None
        if report.bare or self._output.for_people:
            self._show(report.text)
            return report.exit
        meta: dict[str, Any] = {"schema": f"{name.replace(' ', '.')}/1"}
        meta |= {"partial": report.partial} if report.exit else {}
        self._output.result(None, {}, {"data": report.data, "meta": meta})
        return report.exit

    def _judged(self, name: str, parsed: ParsedArguments) -> CommandAnswer:
        """Judges once, or, with --watch, after each change of what the command names."""
        from kbproc.contract.command import run
        from kbproc.contract.watching import changes

        say: list[Any] = [self._output.note] if self._output.for_people else []
        progress = self._output.progress
        report = run(name, parsed.positionals, parsed.last, progress, *say)
        if not parsed.last("--watch"):
            return report
        self._show(report.text)
        for path in changes(parsed.last("--exec")):
            self._show(f"\n{path} has changed.\n")
            report = run(name, parsed.positionals, parsed.last, progress, *say)
            self._show(report.text)
        return report

    def docs(self, args: list[str]) -> int:
        """Runs `kbproc docs [PAGE[#SECTION]]` on the docs of this version, without a network."""
        from kbproc.surfaces.shell import pages
        from kbproc.surfaces.shell.printing.pages import on_screen

        parsed, _ = self._parsed("docs", args)
        if parsed.last("--help"):
            return self.help(["docs"])
        if not parsed.positionals:
            rows = [{"page": page, "title": title} for page, title in pages.titles().items()]
            meta = {"schema": "docs.pages/1", "count": len(rows)}
            self._output.result(None, {}, {"data": rows, "meta": meta})
            return 0
        first, *words = parsed.positionals
        page, section = pages.find(f"{first}#{' '.join(words)}" if words else first)
        if self._output.for_people and self._output.jq is None:
            return self._show(on_screen(section.text, self._output.out, color=self._config.color))
        data = {"page": page, "section": section.anchor}
        data |= {"title": section.title, "text": section.text}
        self._output.result(None, {}, {"data": data, "meta": {"schema": "docs.page/1"}})
        return 0

    def exit_codes(self, args: list[str]) -> int:
        parsed, _ = self._parsed("exit-codes", args)
        if parsed.last("--help"):
            return self.help(["exit-codes"])
        rows = [
            {"code": code, "meaning": meaning, "errors": _types_of(code)}
            for code, meaning in EXIT_CODES.items()
        ]
        meta = {"schema": "exit-codes/1", "count": len(rows)}
        self._output.result(None, {}, {"data": rows, "meta": meta})
        return 0

    def completion(self, args: list[str]) -> int:
        from kbproc.surfaces.shell.completion import script

        parsed, _ = self._parsed("completion", args)
        if parsed.last("--help"):
            return self.help(["completion"])
        shell = parsed.positionals[0] if parsed.positionals else ""
        return self._show(script(_outlines(), shell))

    def help_command(self, args: list[str]) -> int:
        """Runs `kbproc help [COMMAND]`."""
        return self.help(self._parsed("help", args)[0].positionals)

    def help(self, args: list[str]) -> int:
        """Prints the help about everything, a noun, a method or a command of the shell."""
        from kbproc.surfaces.shell.help import page

        return self._show(page(_outlines(), args, self._config))

    def _show(self, text: str) -> int:
        write(self._output.out, text)
        return 0

    def _parsed(self, name: str, args: list[str]) -> tuple[ParsedArguments, Options]:
        command = OWN_COMMANDS[name]
        parsed = parse(f"kbproc {name}", [*command.common, *command.flags], args)
        return parsed, options_of(parsed, self._config, self._output)


def _contract_command(name: str) -> Callable[[Shell, list[str]], int]:
    return lambda shell, args: shell.contract(name, args)


def _profile_command(name: str) -> Callable[[Shell, list[str]], int]:
    return lambda shell, args: shell.profile(name, args)


_RUN: dict[str, Callable[[Shell, list[str]], int]] = {
    "start": Shell.start,
    "call": Shell.call,
    "serve": Shell.serve,
    "mcp": Shell.mcp,
    "hook": Shell.hook,
    "skills install": Shell.install_skill,
    **{name: _profile_command(name) for name in PROFILE_COMMANDS},
    "open": Shell.open,
    "watch follow": Shell.follow,
    "work": Shell.work,
    "eval": Shell.evaluate,
    **{name: _contract_command(name) for name in CONTRACT_COMMANDS},
    "docs": Shell.docs,
    "exit-codes": Shell.exit_codes,
    "completion": Shell.completion,
    "help": Shell.help_command,
}


def _registry() -> Registry:
    from kbproc.methods.all import registry

    return registry()


def _outlines() -> Names[Outline]:
    from kbproc.methods.all import outlines

    return outlines()


def _stdin() -> bytes:
    """Returns the bytes of stdin; none if it is closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def _log_notes(config: Config) -> None:
    """Writes the settings' notes to the log, as `serve` and `mcp` do."""
    if not config.notes:
        return
    import logging

    from kbproc.base.host import Host
    from kbproc.surfaces.wire.logs import log_to_stderr

    log_to_stderr(config.log_level, Host())
    for note in config.notes:
        logging.getLogger(__name__).warning("%s", note)


def _number(parsed: ParsedArguments, name: str, *, command: str = "serve") -> int:
    """Returns the number of a flag, 0 if it has no default. Raises input.invalid_params."""
    flag = next(flag for flag in OWN_COMMANDS[command].flags if flag.name == name)
    text = parsed.last(name)
    if text is None:
        return int(flag.default or 0)
    if not text.isdecimal() or int(text) < (flag.minimum or 0):
        raise usage_error(f"{name} is {text!r}; it is a number of at least {flag.minimum}.", name)
    if flag.maximum is not None and int(text) > flag.maximum:
        raise usage_error(f"{name} is {text!r}; it is a number of at most {flag.maximum}.", name)
    return int(text)


def _types_of(code: int) -> list[str]:
    return [row.type for row in ERRORS.values() if row.exit == code]
