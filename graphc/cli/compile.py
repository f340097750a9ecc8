"""Write functions as a native library with its C header.

The library has one C function for each, all sharing one state; the suffix of -o says what to
write: .so (.dll, .dylib, .wasm), .a, .o, .ll, .s, .hpp for C++, or .h for the header alone; --kind
writes more of these beside it, from one compilation. The C header is always written."""

from __future__ import annotations

import argparse
import os

from graphc.cli import CommandLineError
from graphc.cli.sources import Sources

EXAMPLE = """example:
  graphc compile digits.py:step digits.py:predict -o libdigits.so"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "functions", metavar="FILE", nargs="+", help="FILE.py:NAME, FILE.py or FILE.gir"
    )
    parser.add_argument(
        "-o", metavar="OUT", dest="out", required=True, help="the library, say libdigits.so"
    )
    parser.add_argument(
        "--kind", metavar="KINDS", default="",
        help="more files to write beside OUT, by their suffixes: a,o,ll,s,so",
    )
    parser.add_argument(
        "--target", metavar="NAME", default="native",
        help="the machine to write for, such as aarch64-linux-gnu; a wrong name lists all",
    )
    parser.add_argument(
        "--cpu", metavar="LEVELS",
        help="levels to compile for (all unless given), of v2,v3,v4 on x86-64 and v8,v8.2 on "
        "AArch64, or native",
    )
    parser.add_argument(
        "--state", metavar="WHAT", default="current",
        help="values that the library's init sets: current (default) or initial; or names of "
        "variables, with commas, to hold in the state though nothing updates them",
    )
    parser.add_argument(
        "--debug-info", action="store_true",
        help="add line tables that map machine code to the declaring lines",
    )


def run(options: argparse.Namespace, sources: Sources) -> None:
    """Export the functions; raises CommandLineError and GraphcError."""
    from graphc.codegen.library.write import KINDS, files_of
    from graphc.codegen.machine.platforms import platform
    from graphc.errors import UsageError
    from graphc.export import export

    cpu = options.cpu.split(",") if options.cpu is not None else None
    try:
        levels = platform(options.target).levels
    except UsageError as e:
        raise CommandLineError(f"--{e.message}") from None
    for level in cpu or ():
        if levels != ("base",) and (
            level not in (*levels, "native") or (level == "native" and len(cpu or ()) > 1)
        ):
            raise CommandLineError(
                f"--cpu: expected levels of {','.join(levels)}, or native, got {options.cpu!r}"
            )
    kinds = [kind for kind in options.kind.split(",") if kind]
    for kind in kinds:
        if f".{kind.removeprefix('.')}" not in KINDS:
            known = ",".join(k[1:] for k in KINDS)
            raise CommandLineError(f"--kind: expected kinds of {known}, got {kind!r}")
    state = options.state
    if state not in ("current", "initial"):
        state = state.split(",")
    functions = [sources.function(text) for text in options.functions]
    path = export(functions, options.out, state=state, cpu=cpu, kinds=kinds,
                  target=options.target, debug_info=options.debug_info)
    for file in files_of(path, kinds):
        print(f"wrote {file} ({os.path.getsize(file):,} bytes)")
