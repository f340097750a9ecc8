"""The C header of a library, for C99 and C++11."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.codegen.library.abi import C_TYPES, Api, Arg, Entry, Field, nbytes
from graphc.codegen.library.descriptor import file_size
from graphc.codegen.program import FIRST_SITE, Status
from graphc.types import shape_text

LONGEST_FORMULA = 400  # letters: beyond them nobody reads it, and the function tells the bytes

_INTRODUCTION = """
Every function that returns int returns 0, or a code that {p}_strerror explains; a call that fails
leaves outputs undefined and the state as it was. Calls keep no hidden data, so threads may call at
the same time, each with its own state, outputs and arena.

Arrays are in C order (last axis contiguous). Inputs may overlap each other, but neither outputs,
the state nor the arena. f16 and bf16 are uint16_t holding their bits; bool is uint8_t, 0 or 1.
A dimension is an int64_t that names an axis of some argument. An array without elements may be
NULL. An output that is not wanted may be NULL; its values then go to the arena, whose promised
size includes room for that. The arena is working memory of at least {p}_..._arena(...) bytes, at
any address; with NULL the call allocates what it needs and frees it, and with an arena nothing is
allocated.
"""


_COMMON = """\
/* Does now what the first call would do: looks at the CPU, starts the threads. */
void {p}_warmup(void);
/* At most n threads from now on; 1 never creates one. Default: the environment variable
   GRAPHC_NUM_THREADS, else the CPUs this process may use. */
void {p}_set_threads(int n);
/* What a status code means: operation, reason, line of the declaring program. */
const char *{p}_strerror(int code);
/* {m}_ABI of the header that belongs to the library. */
uint64_t {p}_abi(void);
/* All of this as JSON, for programs that load the library at run time. */
const char *{p}_descriptor(void);

#ifdef __cplusplus
}}
#endif

#endif
"""
_FILES = """\
/* To a file and back. The file is replaced as a whole; another library's, a cut or a
   damaged one is refused, and then the state stays as it was. Python reads it too. */
int {p}_save_state(const {p}_state *s, const char *path);
int {p}_load_state({p}_state *s, const char *path);
/* The same {m}_STATE_FILE_BYTES bytes in memory. */
"""
_NO_FILES = """\
/* To the {m}_STATE_FILE_BYTES bytes of a state file and back; files themselves are the caller's,
   for this system has none. Bytes of another library, cut or damaged ones are refused, and then
   the state stays as it was. */
"""


# What stands for the allocation of a C library where there is none.
_OWN_MEMORY = """
A module (.wasm) imports nothing. It exports `memory`, and `malloc` and `free` as C has them, by
which callers place arrays; addresses and what malloc takes are 32-bit numbers, every int64_t is a
BigInt in JavaScript. An object or an archive needs malloc and free of what it is linked with.
"""


def comment_safe(text: str) -> str:
    """Text that may stand in a C comment: ASCII, one line, no comment marks or trigraphs."""
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    shown = "".join(ch if ch.isprintable() else " " for ch in ascii_text)
    return shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def header_text(api: Api, version: str) -> str:
    """The whole header."""
    lines = [*_beginning(api, version), *_status(api)]
    if api.fields:
        lines += [*_struct(api), ""]
    for e in api.entries:
        lines += [*_entry(api, e), ""]
    return "\n".join([*lines, _COMMON.format(p=api.prefix, m=api.macro)])


def _beginning(api: Api, version: str) -> list[str]:
    """Introduction, includes, and the constants of the library."""
    p, m = api.prefix, api.macro
    lines = [
        f"/* {p}: made by graphc {comment_safe(version)}. This code is its user's own; graphc "
        "claims no rights in it.",
        *_INTRODUCTION.format(p=p).rstrip().splitlines(),
        *([] if api.files else _OWN_MEMORY.rstrip().splitlines()),
        "*/",
        f"#ifndef {m}_GRAPHC_H",
        f"#define {m}_GRAPHC_H",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f'#define {m}_GRAPHC_VERSION "{version}"',
        f"#define {m}_ABI UINT64_C(0x{api.abi_hash:016x}) /* what {p}_abi() returns */",
    ]
    if api.fields:
        file_bytes = file_size(api)
        lines += [
            f"#define {m}_STATE_FILE_BYTES UINT64_C({file_bytes}) /* of a saved state */",
            f"#define {m}_STATE_LAYOUT UINT64_C(0x{api.state_hash:016x}) "
            "/* changes with the struct below */",
        ]
    return [*lines, ""]


def _status(api: Api) -> list[str]:
    """The enum of status codes."""
    return [
        f"enum {api.prefix}_status {{",
        *(f"  {api.status(s)} = {s.value}, /* {comment_safe(s.text)} */" for s in Status),
        f"  {api.macro}_FIRST_SITE = {FIRST_SITE} "
        "/* this code and greater ones are places in the declared program */", "};", "",
    ]


def listed(begin: str, items: Sequence[str], end: str) -> list[str]:
    """A list with commas between `begin` and `end`, in lines of at most 98 characters."""
    out, line = [], begin
    for k, item in enumerate(items):
        text = item + (", " if k + 1 < len(items) else "")
        if len(line) + len(text) + len(end) > 98 and line.strip():
            out.append(line.rstrip())
            line = " " * len(begin)
        line += text
    return [*out, line + end]


def _struct(api: Api) -> list[str]:
    p = api.prefix
    out = [
        "/* All that calls change: plain data to copy, save or send. Set it up with "
        f"{p}_init. */",
        f"typedef struct {p}_state {{",
    ]
    out += [f"  {_field(f)}" for f in api.fields]
    if not api.state_bytes:
        out.append("  char no_elements; /* every variable is empty */")
    out.append(f"}} {p}_state;")
    if api.state_bytes:
        out.append(f"typedef char {p}_state_size_check"
                   f"[sizeof({p}_state) == {api.state_bytes}u ? 1 : -1];")
    out += [
        "/* Sets every variable to its value at export. */",
        f"void {p}_init({p}_state *s);",
        "/* The size of the struct, for callers that do not read this header. */",
        f"int64_t {p}_state_bytes(void);",
        *(_FILES if api.files else _NO_FILES).format(p=p, m=api.macro).splitlines(),
        f"void {p}_pack_state(const {p}_state *s, void *buffer);",
        f"int {p}_unpack_state({p}_state *s, const void *buffer, int64_t bytes);",
    ]
    return out


def _field(f: Field) -> str:
    t = f.state.type
    note = f"/* {comment_safe(f.state.name)}: {t} */"
    if not nbytes(f.state):
        return f"/* {comment_safe(f.state.name)}: {t}, without elements */"
    if not t.shape:
        return f"{C_TYPES[t.dtype.name]} {f.c}; {note}"
    count = nbytes(f.state) // t.dtype.itemsize
    product = " * ".join(map(str, t.shape)) if count < 1 << 31 else str(count)
    return f"{C_TYPES[t.dtype.name]} {f.c}[{product}]; {note}"


def _entry(api: Api, e: Entry) -> list[str]:
    sizes = [f"int64_t {c}" for _, c in e.dims]
    out = [f"/* {comment_safe(e.unit.name)}"]
    for role, args in (("in ", e.inputs), ("out", e.outputs)):
        for a in args:
            renamed = f" (declared as {comment_safe(a.name)})" if a.name != a.c else ""
            out.append(f"     {role} {a.c}: {comment_safe(str(a.type))}{renamed}")
    if e.state == "const":
        out.append("     reads the state")
    if e.state == "update":
        out.append("     reads and updates the state")
    arena = f"{comment_safe(str(e.arena))} bytes"
    if len(arena) > LONGEST_FORMULA:
        arena = f"what {e.arena_c} says"
    out.append(f"     arena: {arena} */")
    out += [f"int64_t {e.arena_c}({', '.join(sizes) or 'void'}); "
            "/* -1 for sizes that cannot be */"]
    params = []
    if e.state:
        params.append(f"{'const ' * (e.state == 'const')}{api.prefix}_state *s")
    params += [f"const {_pointer(a)}" for a in e.inputs]
    params += [_pointer(a) for a in e.outputs]
    params += [*sizes, "void *arena"]
    out += listed(f"int {e.c}(", params, ");")
    return [
        *out, "/* The same, for an arena of so many bytes: too few are a code. */",
        *listed(f"int {e.in_c}(", [*params, "int64_t arena_bytes"], ");"),
    ]


def _pointer(a: Arg) -> str:
    return f"{C_TYPES[a.type.dtype.name]} *{a.c} /*{comment_safe(shape_text(a.type.shape))}*/"
