"""The `kbproc` command: from arguments to an exit code.

Owns: which command is meant, help, and the commands that are no methods.
Refuses to know: flags in detail (flags.py, argv.py), formats (output.py), and
how a request is asked (perform.py).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

import kbproc
from kbproc.base.errors import ERRORS, EXIT_CODES, KbprocError
from kbproc.settings import config as settings
from kbproc.shell.commands import BINDING, find_command, nouns, own_command, spaced_commands
from kbproc.shell.formats import Output, write

if TYPE_CHECKING:
    from kbproc.calls.flags import Flag
    from kbproc.calls.method import Method, Registry
    from kbproc.settings.config import Config
    from kbproc.shell.arguments import Parsed
    from kbproc.shell.options import Options

INTERRUPTED = 130
_HELP = frozenset({"-h", "--help"})
# These read no store.
_NEEDLESS = frozenset({"help", "version", "describe", "schema", "exit-codes", "completion", "gen"})


def main(argv: list[str], *, pipes: tuple[int, int] | None = None) -> int:
    """Runs one command; `pipes`: the wire's descriptors, if they were claimed already."""
    _speak_utf8()
    if argv == ["--version"]:
        from kbproc import __version__

        write(sys.stdout, f"kbproc {__version__}\n")
        return 0
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
    from kbproc.shell.options import format_in, leading_flags, output_for, value_in

    output = Output(sys.stdout, sys.stderr)
    try:
        _check_text(argv)
        wanted = format_in(argv)
        output = output_for(wanted, color=False)
        settings.check_platform()
        words = leading_flags(argv)[1]
        config = _settings(argv, words, value_in(argv, "--profile"))
        output = output_for(wanted or config.format, color=config.color)
        output.profile = config.profile
        if words[:1] != ["serve"]:
            for note in config.notes:
                output.note(note)
        return Shell(config, output, pipes).run(argv)
    except KbprocError as error:
        return _refused(output, error)
    except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
        from kbproc.wire.messages import unexpected

        return _refused(output, unexpected(error))


def _settings(argv: list[str], words: list[str], profile: str | None) -> Config:
    """Help and the like must come even while the settings are broken."""
    env = settings.environment()
    asked = _HELP & set(argv[: argv.index("--")] if "--" in argv else argv)
    needless = bool(asked) or not words or words[0] in _NEEDLESS
    try:
        return settings.load(env, profile=profile, lenient=needless or words[0] == "profile")
    except KbprocError:
        if needless and profile is None:
            return settings.bare(env)
        raise


def _refused(output: Output, error: KbprocError) -> int:
    from kbproc.shell.run import data_of

    output.error(data_of(error))
    return error.row.exit


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


class Shell:
    """One command line, with what the environment settles."""

    def __init__(self, config: Config, output: Output, pipes: tuple[int, int] | None) -> None:
        self._config = config
        self._output = output
        self._pipes = pipes

    def run(self, argv: list[str]) -> int:
        from kbproc.calls.flags import GLOBAL_FLAGS
        from kbproc.shell.arguments import parse
        from kbproc.shell.options import leading_flags

        leading, words = leading_flags(argv)
        if "--version" in leading:
            return main(["--version"])
        parse("kbproc", GLOBAL_FLAGS, leading)
        if not words:
            return self.help([])
        own, rest = own_command(words)
        if own is not None:
            return OWN[own](self, [*leading, *rest])
        return self._method_command(leading, words)

    def _method_command(self, leading: list[str], words: list[str]) -> int:
        from kbproc.calls.flags import GLOBAL_FLAGS, flags_of
        from kbproc.shell.arguments import command_of, params_of, parse
        from kbproc.shell.options import options_of

        registry = _registry()
        if _HELP & set(leading):
            return self.help(words)
        if words[0] in nouns(registry) and _HELP & set(words[1:2]):
            return self.help(words[:1])
        method, rest = find_command(registry, words)
        flags = [*GLOBAL_FLAGS, *flags_of(method)]
        parsed = parse(command_of(method), flags, [*leading, *rest])
        if parsed.last("--help"):
            return self._method_help(method)
        if parsed.last("--agents-md"):
            return self._agents_md(registry)
        own = {flag.name for flag in flags_of(method) if flag.param}
        options = options_of(parsed, self._config, self._output, own)
        return self._perform(registry, method, params_of(method, parsed), options)

    def _perform(
        self, registry: Registry, method: Method, params: dict[str, Any], options: Options
    ) -> int:
        from kbproc.shell.run import perform

        return perform(registry, method, params, options)

    # --------------------------------------------------- commands that are no methods

    def call(self, args: list[str]) -> int:
        """`kbproc call METHOD [JSON | key=value …] [-]`."""
        from kbproc.shell.arguments import params_from_words, usage_error

        parsed, options = self._parsed("call", args)
        if parsed.last("--help"):
            return self.help(parsed.positionals[:1] or ["call"])
        if not parsed.positionals:
            raise usage_error("call needs a method.", "call", hint="Try kbproc call ping.")
        registry = _registry()
        method = registry.find(parsed.positionals[0])
        params = params_from_words(parsed.positionals[1:], sys.stdin.buffer.read)
        return self._perform(registry, method, params, options)

    def serve(self, args: list[str]) -> int:
        """The wire is claimed before anything heavy is imported."""
        from kbproc.base.pipes import claim

        parsed, options = self._parsed("serve", args)
        if parsed.last("--help"):
            return self.help(["serve"])
        numbers = {name: _number(parsed, name) for name in ("--max-line-bytes", "--max-in-flight")}
        pipes = self._pipes or claim()
        _log_notes(options.config)
        from kbproc.sharing import serve
        from kbproc.sharing.serving import Serving

        serving = Serving(
            config=options.bound,
            protocol=parsed.last("--protocol"),
            root=parsed.last("--root"),
            scopes=parsed.last("--scopes"),
            max_line_bytes=numbers["--max-line-bytes"],
            max_in_flight=numbers["--max-in-flight"],
            allow_private_addresses=bool(parsed.last("--allow-private-addresses")),
        )
        return serve.run(serving, pipes)

    def bind(self, name: str, args: list[str]) -> int:
        """`profile …`, `link`, `unlink`."""
        parsed, options = self._parsed(name, args)
        if parsed.last("--help"):
            return self.help(name.split())
        from kbproc.shell.profiles import COMMANDS

        self._output.result(None, {}, COMMANDS[name](parsed, options))
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
        wanted = parsed.positionals[0] if parsed.positionals else ""
        return self._show(script(_registry(), wanted))

    def help(self, args: list[str]) -> int:
        """Of everything, a noun, a method or one of the shell's own commands."""
        from kbproc.shell import help

        registry = _registry()
        words = [word for word in args if not word.startswith("-")]
        if not words:
            return self._overview(registry)
        own, _ = own_command(words)
        if own is not None:
            flags = _own_flags(own)
            return self._page(lambda: help.of_own(own, flags), lambda _: own_as_data(own))
        name = words[0]
        if len(words) == 1 and (spaced := spaced_commands(name)):
            return self._page(
                lambda: help.of_own_noun(name, spaced),
                lambda _: [own_as_data(command) for command in spaced],
            )
        if name in nouns(registry) and len(words) == 1:
            methods = help.by_noun(registry)[name]
            return self._page(
                lambda: help.of_noun(name, methods),
                lambda describe: [describe.of_method(method) for method in methods],
            )
        return self._method_help(find_command(registry, words)[0])

    def _overview(self, registry: Registry) -> int:
        from kbproc.shell import help

        return self._page(
            lambda: help.overview(registry),
            lambda describe: describe.of_registry(registry, self._config.profile_names),
        )

    def _method_help(self, method: Method) -> int:
        from kbproc.shell import help

        return self._page(
            lambda: help.of_method(method), lambda describe: describe.of_method(method)
        )

    def _page(self, text: Callable[[], str], data: Callable[[ModuleType], Any]) -> int:
        """Help for people, or with KBPROC_AGENT_HELP as JSON."""
        if not self._config.agent_help:
            return self._show(text())
        from kbproc.calls import describe

        return self._show(msgspec.json.format(msgspec.json.encode(data(describe))).decode() + "\n")

    def gen(self, args: list[str]) -> int:
        """For whoever changes kbproc, inside its repository."""
        from kbproc.shell import gen

        parsed, _ = self._parsed("gen", args)
        if parsed.last("--help"):
            return self.help(["gen"])
        repo = Path(kbproc.__file__).parents[1]
        if parsed.last("--check"):
            wrong = gen.check(_registry(), repo)
            told = [f"{line}: run kbproc gen" for line in wrong] or ["All is as declared."]
        else:
            wrong, told = [], gen.write(_registry(), repo) or ["All is as declared."]
        self._show("\n".join(told) + "\n")
        return 1 if wrong else 0

    def _agents_md(self, registry: Registry) -> int:
        from kbproc.calls.describe import agents_md

        return self._show(agents_md(registry))

    def _show(self, text: str) -> int:
        write(self._output.out, text)
        return 0

    def _parsed(self, name: str, args: list[str]) -> tuple[Parsed, Options]:
        from kbproc.calls.flags import GLOBAL_FLAGS
        from kbproc.shell.arguments import parse
        from kbproc.shell.options import options_of

        parsed = parse(f"kbproc {name}", [*GLOBAL_FLAGS, *_own_flags(name)], args)
        return parsed, options_of(parsed, self._config, self._output)


def _binds(name: str) -> Callable[[Shell, list[str]], int]:
    return lambda shell, args: shell.bind(name, args)


OWN: dict[str, Callable[[Shell, list[str]], int]] = {
    "call": Shell.call,
    "serve": Shell.serve,
    **{name: _binds(name) for name in BINDING},
    "exit-codes": Shell.exit_codes,
    "completion": Shell.completion,
    "gen": Shell.gen,
    "help": Shell.help,
}


def _registry() -> Registry:
    from kbproc.methods.registry import registry

    return registry()


def _own_flags(name: str) -> tuple[Flag, ...]:
    from kbproc.calls.flags import OWN_FLAGS

    return OWN_FLAGS.get(name, ())


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
    from kbproc.shell.arguments import usage_error

    flag = next(flag for flag in _own_flags("serve") if flag.name == name)
    text = parsed.last(name)
    if text is None:
        return int(flag.default)
    if not text.isdecimal() or int(text) < (flag.minimum or 0):
        raise usage_error(f"{name} is {text!r}; it is a number of at least {flag.minimum}.", name)
    return int(text)


def _types_of(code: int) -> list[str]:
    return [row.type for row in ERRORS.values() if row.exit == code]


def own_as_data(name: str) -> dict[str, Any]:
    """One of the shell's own commands, as `describe` tells methods."""
    from kbproc.shell.commands import OWN_COMMANDS

    usage, summary = OWN_COMMANDS[name]
    return {"name": name, "summary": summary, "usage": usage, "flags": list(_own_flags(name))}
