"""The graphc command: one module per subcommand, imported when it is asked for.

Exit status: 0 done, 1 the user's program or input is at fault, 2 the command line is.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

from graphc.errors import GraphcError, Loc, did_you_mean, user_loc

COMMANDS = {
    "compile": "write functions as a native library with its C header",
    "run": "run a function on arrays and print what it gives",
    "opt": "run passes on a graph and print the result",
    "dot": "draw a graph, as DOT or as SVG",
    "inspect": "show inputs, outputs, variables, operations, cost and memory",
}
USAGE = "usage: graphc COMMAND ...   (graphc --help lists the commands)"
HELP = f"""usage: graphc COMMAND ...

A static-graph tensor compiler: declare in Python, differentiate, compile, ship.

commands:
{chr(10).join(f"  {name:<9}{text}" for name, text in COMMANDS.items())}

options:
  -h, --help       this text; graphc COMMAND --help tells more of a command
  --version        the version

A function is given as FILE.py:NAME, where FILE.py declares NAME = gx.function(...), or as a graph
in text form, FILE.gir. FILE.py alone will do where it declares one function only.

example:
  graphc compile digits.py:step digits.py:predict -o libdigits.so
"""


class CommandLineError(Exception):
    """A command line that cannot be meant; `usage` is shown above the message."""

    def __init__(self, message: str, usage: str = ""):
        super().__init__(message)
        self.usage = usage


class _Parser(argparse.ArgumentParser):
    """Reports like everything else here, and leaves the exit to `main`."""

    def error(self, message: str) -> NoReturn:
        raise CommandLineError(message, self.format_usage().rstrip())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status and never shows a traceback for a mistake."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    entry = user_loc()
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the shell: `graphc ... >&-`
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 -- till the end
    with _interrupts():
        return _outcome(arguments, entry)


def _outcome(arguments: list[str], entry: Loc | None) -> int:
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except CommandLineError as e:
        if e.usage:
            print(e.usage, file=sys.stderr)
        return _report(str(e), 2)
    except GraphcError as e:
        # the place that called `main` says nothing to anybody
        return _report(e.message if e.loc == entry else str(e), 1)
    except BrokenPipeError:  # `graphc opt ... | head` is no mistake
        _close_output()
        return 1
    except KeyboardInterrupt:
        return _report("interrupted", 130)
    except OSError as e:
        _close_output()
        name = f"{e.filename}: " if e.filename else ""
        return _report(f"{name}{e.strerror or e}", 1)
    except MemoryError as e:
        return _report(f"out of memory: {e}" if str(e) else "out of memory", 1)


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """KeyboardInterrupt for an interrupt, where the process would end; see graphc/__init__.py."""
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:  # the interpreter's exit takes time as well
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        raise CommandLineError(f"which command? {', '.join(COMMANDS)}", USAGE)
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if name == "--version":
        from graphc import __version__

        print(f"graphc {__version__}")
        return 0
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or f"there are {', '.join(COMMANDS)}"
        raise CommandLineError(f"no command {name!r}; {hint}", USAGE)
    command = importlib.import_module(f"graphc.cli.{name}")
    parser = _Parser(
        prog=f"graphc {name}", description=command.__doc__, epilog=command.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )
    command.configure(parser)
    parser.add_argument(
        "--load", metavar="FILE.py", action="append", default=[],
        help="execute it first: it defines operations that a .gir uses",
    )
    try:
        options = parser.parse_intermixed_args(rest)
    except SystemExit as e:  # --help
        return int(e.code or 0)
    from graphc.cli.sources import Sources

    with Sources() as sources:
        for path in options.load:
            sources.module(path)
        command.run(options, sources)
    return 0


def _close_output() -> None:
    """Throw away what stdout did not take, or the interpreter would complain of it at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(message: str, status: int) -> int:
    print(f"graphc: error: {message}", file=sys.stderr)
    return status
