"""The `kbproc` command: from arguments to an exit code.

Owns: which command runs, the commands that are no methods, and what becomes of errors.
Refuses to know: how flags are read (arguments.py), what is printed (printing/), and how
a method is asked (run.py).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kbproc
from kbproc.base.errors import ERRORS, EXIT_CODES, KbprocError
from kbproc.base.suggest import closest, did_you_mean, ranked
from kbproc.calls.flags import GLOBAL_FLAGS, SHELL_DEFAULTS, common_flags, flags_of
from kbproc.settings import config as settings
from kbproc.settings.config import Config
from kbproc.shell.arguments import (
    Options,
    Parsed,
    format_in,
    leading_flags,
    options_of,
    output_for,
    parse,
    refuse_meaningless,
    usage_error,
    value_in,
)
from kbproc.shell.commands import (
    CONTRACT_COMMANDS,
    OWN_COMMANDS,
    PROFILE_COMMANDS,
    find_command,
    nouns,
    own_command,
)
from kbproc.shell.printing.formats import Output, write

if TYPE_CHECKING:
    from kbproc.calls.registry import Registry

INTERRUPTED = 130
_HELP = frozenset({"-h", "--help"})
# These read no store.
_STORELESS = frozenset(
    {"help", "version", "describe", "schema", "exit-codes", "completion", "contract", "docs", "gen"}
)


def main(argv: list[str], *, pipes: tuple[int, int] | None = None) -> int:
    """Runs one command; `pipes`: the wire's descriptors, if they were claimed already."""
    _speak_utf8()
    try:
        return _run(argv, pipes)
    except KeyboardInterrupt:
        return INTERRUPTED


def _speak_utf8() -> None:
    """JSON is UTF-8, whatever the locale says."""
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
        config = _settings(argv, words, value_in(argv, "--profile"))
        output = output_for(format or config.format, color=config.color)
        output.profile = config.profile
        if words[:1] not in (["serve"], ["mcp"]) and "--trust" not in argv:  # that answers them
            for note in config.notes:
                output.note(note)
        return Shell(config, output, pipes).run(argv)
    except KbprocError as error:
        if error.valid_values:
            from kbproc.shell.correction import correct

            correct(error, argv, _registry())
        return _refused(output, error)
    except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
        from kbproc.wire.messages import unexpected

        return _refused(output, unexpected(error))


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
    """Help and the like must come even while the settings are broken."""
    env = settings.environment()
    asks_help = bool(_HELP & set(argv[: argv.index("--")] if "--" in argv else argv))
    storeless = asks_help or not words or words[0] in _STORELESS
    try:
        return settings.load(env, profile=profile, lenient=storeless or words[0] == "profile")
    except KbprocError:
        if storeless and profile is None:
            return settings.bare(env)
        raise


def _refused(output: Output, error: KbprocError) -> int:
    from kbproc.shell.run import data_of

    output.error(data_of(error))
    return error.row.exit


class Shell:
    """One command line, with what the settings say before its flags."""

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
        from kbproc.calls.typed import command_of
        from kbproc.shell.params import params_of

        registry = _registry()
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
            from kbproc.calls.describe import agents_md

            return self._show(agents_md(registry))
        from kbproc.shell.run import run  # heavy: not for help, nor for a wrong flag

        own = {flag.name for flag in flags_of(method) if flag.param}
        options = options_of(parsed, self._config, self._output, own)
        params = {**SHELL_DEFAULTS.get(method.name, {}), **params_of(method, parsed, _stdin)}
        return run(registry, method, params, options)

    # --------------------------------------------------- commands that are no methods

    def call(self, args: list[str]) -> int:
        """`kbproc call METHOD [JSON | key=value …] [-]`."""
        from kbproc.shell.params import params_from_words

        parsed, options = self._parsed("call", args)
        if parsed.last("--help"):
            return self.help(parsed.positionals[:1] or ["call"])
        if not parsed.positionals:
            raise usage_error("call needs a method.", "call", hint="Try kbproc call ping.")
        registry = _registry()
        method = registry.find(parsed.positionals[0])
        known = {flag.name for flag in (*common_flags(method), *flags_of(method))}
        refuse_meaningless(f"kbproc call {method.name}", known, parsed.given)
        params = params_from_words(parsed.positionals[1:], _stdin)
        from kbproc.shell.run import run

        return run(registry, method, params, options, typed=False)

    def serve(self, args: list[str]) -> int:
        """The wire is claimed before anything heavy is imported."""
        from kbproc.base.pipes import claim

        parsed, options = self._parsed("serve", args)
        if parsed.last("--help"):
            return self.help(["serve"])
        max_line_bytes = _number(parsed, "--max-line-bytes")
        max_in_flight = _number(parsed, "--max-in-flight")
        pipes = self._pipes or claim()
        _log_notes(options.config)
        from kbproc.sharing import serve
        from kbproc.sharing.serving import Serving

        serving = Serving(
            config=options.bound,
            protocol=parsed.last("--protocol"),
            root=parsed.last("--root"),
            scopes=parsed.last("--scopes"),
            max_line_bytes=max_line_bytes,
            max_in_flight=max_in_flight,
            allow_private_addresses=bool(parsed.last("--allow-private-addresses")),
            thin=bool(parsed.last("--thin")),
        )
        return serve.run(serving, pipes)

    def mcp(self, args: list[str]) -> int:
        """Serves, or changes the settings of a program that starts servers."""
        from kbproc.mcp.setup.run import run

        parsed, options = self._parsed("mcp", args)
        if parsed.last("--help"):
            return self.help(["mcp"])
        _log_notes(options.config)
        given, agreed = parsed.given, bool(options.yes)
        return run(options.bound, parsed.positionals, given, self._pipes, self._show, agreed=agreed)

    def profile(self, name: str, args: list[str]) -> int:
        """`profile …`, `link`, `unlink`."""
        parsed, options = self._parsed(name, args)
        if parsed.last("--help"):
            return self.help(name.split())
        from kbproc.shell.profiles import COMMANDS

        self._output.result(None, {}, COMMANDS[name](parsed, options))
        return 0

    def work(self, args: list[str]) -> int:
        """`kbproc work SERVER…`."""
        parsed, options = self._parsed("work", args)
        if parsed.last("--help"):
            return self.help(["work"])
        from kbproc.embedding.cluster.command import work

        found = work(parsed.positionals, parsed.last, options.config.cache, self._output.note)
        self._output.result(None, {}, {"data": found, "meta": {"schema": "work/1"}})
        return 0

    def evaluate(self, args: list[str]) -> int:
        """`kbproc eval DIR`."""
        parsed, options = self._parsed("eval", args)
        if parsed.last("--help"):
            return self.help(["eval"])
        from kbproc.search.evaluation import told
        from kbproc.shell.evaluation.command import evaluate

        found = evaluate(parsed, options, _registry())
        if options.output.for_people and options.output.jq is None:
            return self._show(told.for_people(found))
        options.output.result(None, {}, {"data": found, "meta": {"schema": "eval/1"}})
        return 0

    def contract(self, name: str, args: list[str]) -> int:
        """`contract …`: 1 if a rule was broken, 2 if none was and not all could be told."""
        from kbproc.client.contract.command import run
        from kbproc.client.contract.kit import KitError

        parsed, _ = self._parsed(name, args)
        if parsed.last("--help"):
            return self.help(name.split())
        try:
            found = run(name.split()[1], parsed.positionals, parsed.last, self._output.progress)
        except KitError as error:
            near = did_you_mean(closest(error.typed, error.values))
            more = {"valid_values": ranked(error.typed, error.values)} if error.values else {}
            raise usage_error(str(error), name, hint=f"{near}{error.hint}", **more) from None
        if found.bare or self._output.for_people:
            self._show(found.text)
            return found.exit
        meta: dict[str, Any] = {"schema": f"{name.replace(' ', '.')}/1"}
        meta |= {"partial": found.partial} if found.exit else {}
        self._output.result(None, {}, {"data": found.data, "meta": meta})
        return found.exit

    def docs(self, args: list[str]) -> int:
        """`kbproc docs [PAGE[#SECTION]]`: those of this very version, without a network."""
        from kbproc.repo import pages
        from kbproc.shell.printing.pages import on_screen

        parsed, _ = self._parsed("docs", args)
        if parsed.last("--help"):
            return self.help(["docs"])
        if not parsed.positionals:
            rows = [{"page": page, "title": title} for page, title in pages.titles().items()]
            meta = {"schema": "docs.pages/1", "count": len(rows)}
            self._output.result(None, {}, {"data": rows, "meta": meta})
            return 0
        first, *words = parsed.positionals
        page, found = pages.find(f"{first}#{' '.join(words)}" if words else first)
        if self._output.for_people and self._output.jq is None:
            return self._show(on_screen(found.text, self._output.out, color=self._config.color))
        data = {"page": page, "section": found.anchor, "title": found.title, "text": found.text}
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
        from kbproc.shell.completion import script

        parsed, _ = self._parsed("completion", args)
        if parsed.last("--help"):
            return self.help(["completion"])
        shell = parsed.positionals[0] if parsed.positionals else ""
        return self._show(script(_registry(), shell))

    def help_command(self, args: list[str]) -> int:
        """`kbproc help [COMMAND]`."""
        return self.help(self._parsed("help", args)[0].positionals)

    def help(self, args: list[str]) -> int:
        """Of everything, a noun, a method or one of the shell's own commands."""
        from kbproc.shell.help import page

        return self._show(page(_registry(), args, self._config))

    def gen(self, args: list[str]) -> int:
        """For the developers of kbproc, inside its repository."""
        from kbproc.repo import gen

        parsed, _ = self._parsed("gen", args)
        if parsed.last("--help"):
            return self.help(["gen"])
        repo = Path(kbproc.__file__).parents[1]
        if parsed.last("--check"):
            lines = wrong = [f"{line}: run kbproc gen" for line in gen.check(_registry(), repo)]
        else:
            lines, wrong = gen.write(_registry(), repo), []
        self._show("\n".join(lines or ["All is as declared."]) + "\n")
        return 1 if wrong else 0

    def _show(self, text: str) -> int:
        write(self._output.out, text)
        return 0

    def _parsed(self, name: str, args: list[str]) -> tuple[Parsed, Options]:
        command = OWN_COMMANDS[name]
        parsed = parse(f"kbproc {name}", [*command.common, *command.flags], args)
        return parsed, options_of(parsed, self._config, self._output)


def _contract_command(name: str) -> Callable[[Shell, list[str]], int]:
    return lambda shell, args: shell.contract(name, args)


def _profile_command(name: str) -> Callable[[Shell, list[str]], int]:
    return lambda shell, args: shell.profile(name, args)


_RUN: dict[str, Callable[[Shell, list[str]], int]] = {
    "call": Shell.call,
    "serve": Shell.serve,
    "mcp": Shell.mcp,
    **{name: _profile_command(name) for name in PROFILE_COMMANDS},
    "work": Shell.work,
    "eval": Shell.evaluate,
    **{name: _contract_command(name) for name in CONTRACT_COMMANDS},
    "docs": Shell.docs,
    "exit-codes": Shell.exit_codes,
    "completion": Shell.completion,
    "gen": Shell.gen,
    "help": Shell.help_command,
}


def _registry() -> Registry:
    from kbproc.methods.all import registry

    return registry()


def _stdin() -> bytes:
    """Nothing where it was closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def _log_notes(config: Config) -> None:
    """As `serve` says such things: lines of its log."""
    if not config.notes:
        return
    import logging

    from kbproc.base.host import Host
    from kbproc.wire.logs import log_to_stderr

    log_to_stderr(config.log_level, Host())
    for note in config.notes:
        logging.getLogger(__name__).warning("%s", note)


def _number(parsed: Parsed, name: str) -> int:
    """A number of `serve`; raises input.invalid_params."""
    flag = next(flag for flag in OWN_COMMANDS["serve"].flags if flag.name == name)
    text = parsed.last(name)
    if text is None:
        return int(flag.default)
    if not text.isdecimal() or int(text) < (flag.minimum or 0):
        raise usage_error(f"{name} is {text!r}; it is a number of at least {flag.minimum}.", name)
    return int(text)


def _types_of(code: int) -> list[str]:
    return [row.type for row in ERRORS.values() if row.exit == code]
