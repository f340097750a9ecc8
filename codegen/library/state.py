"""Saving and loading the state struct, as LLVM text: to files and to memory.

    i32  digits_save_state(ptr %s, ptr %path)     writes beside `path`, then renames
    i32  digits_load_state(ptr %s, ptr %path)
    void digits_pack_state(ptr %s, ptr %buffer)   the same bytes in memory
    i32  digits_unpack_state(ptr %s, ptr %buffer, i64 %bytes)
    i64  digits_state_bytes()                     of the struct

The format is that of graphc.state_file. All before the values is one constant of the library, so
checking a file is comparing with it and summing up the values; and nothing is copied into the
state before all is checked.
"""

from __future__ import annotations

from graphc.codegen.emission.emitter import filled
from graphc.codegen.library.abi import Api
from graphc.codegen.library.data import string_constant
from graphc.codegen.library.descriptor import file_size, state_header
from graphc.codegen.machine.platforms import Platform
from graphc.codegen.pool.runtime import system_call
from graphc.codegen.program import Status
from graphc.state_file import CHECKSUM, HASH_AT, sums

_VERSION_END = 12  # of magic and version, where files begin
_LONGEST = 65536  # bytes of a path, which is copied to the stack

_DECLARE = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @malloc(i64)
declare void @free(ptr)
declare i64 @strlen(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @getpid()
declare ptr @fopen(ptr, ptr)
declare i64 @fread(ptr, i64, i64, ptr)
declare i64 @fwrite(ptr, i64, i64, ptr)
declare i32 @ferror(ptr)
declare i32 @fflush(ptr)
declare i32 @fileno(ptr)
declare i32 @fsync(i32)
declare i32 @fclose(ptr)
declare i32 @rename(ptr, ptr)
declare i32 @remove(ptr)
"""

# The sums of header and values, at any address, to 16 bytes at any address.
_SUMS = """
define internal void @graphc.state.sums(ptr %values, ptr %to) nounwind {
entry:
  %last = alloca i32, align 4
  store i32 0, ptr %last, align 4
  %tail = getelementptr i8, ptr %values, i64 <WORD_BYTES>
  call void @llvm.memcpy.p0.p0.i64(ptr %last, ptr %tail, i64 <TAIL_BYTES>, i1 false)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %word ]
  %a = phi i64 [ <FIRST>, %entry ], [ %a.next, %word ]
  %b = phi i64 [ <SECOND>, %entry ], [ %b.next, %word ]
  %more = icmp ult i64 %i, <WORD_BYTES>
  br i1 %more, label %word, label %end
word:
  %p = getelementptr i8, ptr %values, i64 %i
  %w = load i32, ptr %p, align 1
  %w.wide = zext i32 %w to i64
  %a.next = add i64 %a, %w.wide
  %b.next = add i64 %b, %a.next
  %i.next = add i64 %i, 4
  br label %head
end:
  %l = load i32, ptr %last, align 4
  %l.wide = zext i32 %l to i64
  %a.last = add i64 %a, %l.wide
  %b.last = add i64 %b, %a.last
  %b.all = select i1 <TAIL>, i64 %b.last, i64 %b
  %second = getelementptr i8, ptr %to, i64 8
  store i64 %a.last, ptr %to, align 1
  store i64 %b.all, ptr %second, align 1
  ret void
}
"""

_PACK = """
define i64 @<P>_state_bytes() nounwind {
  ret i64 <BYTES>
}
define void @<P>_pack_state(ptr %s, ptr %buffer) nounwind {
  %no.s = icmp eq ptr %s, null
  %no.b = icmp eq ptr %buffer, null
  %no = or i1 %no.s, %no.b
  br i1 %no, label %done, label %pack
pack:
  call void @llvm.memcpy.p0.p0.i64(ptr %buffer, ptr @graphc.state.header, i64 <HEADER>, i1 false)
  %values = getelementptr i8, ptr %buffer, i64 <HEADER>
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %s, i64 <BYTES>, i1 false)
  %sums = getelementptr i8, ptr %values, i64 <BYTES>
  call void @graphc.state.sums(ptr %values, ptr %sums)
  br label %done
done:
  ret void
}
define i32 @<P>_unpack_state(ptr %s, ptr %buffer, i64 %bytes) nounwind {
entry:
  %sums = alloca [<SUMS> x i8], align 8
  %no.s = icmp eq ptr %s, null
  %no.b = icmp eq ptr %buffer, null
  %no = or i1 %no.s, %no.b
  br i1 %no, label %null, label %check0
null:
  ret i32 <NULL>
cut:
  ret i32 <CUT>
<CHECKS>
  %values = getelementptr i8, ptr %buffer, i64 <HEADER>
  call void @graphc.state.sums(ptr %values, ptr %sums)
  %told = getelementptr i8, ptr %values, i64 <BYTES>
  %d = call i32 @memcmp(ptr %told, ptr %sums, i64 <SUMS>)
  %right = icmp eq i32 %d, 0
  br i1 %right, label %take, label %cut
take:
  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %values, i64 <BYTES>, i1 false)
  ret i32 0
}
"""

# One step of the above: a part of the header is as it should be, or a code says what is wrong.
_CHECK = """check<K>:
  %enough<K> = icmp <LENGTH>
  br i1 %enough<K>, label %compare<K>, label %short<K>
short<K>:
  ret i32 <SHORT>
compare<K>:
  %told<K> = getelementptr i8, ptr %buffer, i64 <FROM>
  %own<K> = getelementptr i8, ptr @graphc.state.header, i64 <FROM>
  %order<K> = call i32 @memcmp(ptr %told<K>, ptr %own<K>, i64 <SIZE>)
  %same<K> = icmp eq i32 %order<K>, 0
  br i1 %same<K>, label %check<NEXT>, label %other<K>
other<K>:
  ret i32 <OTHER>
"""

# Root could put a file in the place of a device or a pipe: only what is not there, files, and links
# to either are replaced. Linux says what a path is (stx_mode) in the same place on all machines, so
# does macOS (st_mode).
_SPECIAL = """  %told = alloca [64 x i32], align 8
<LOOK>
  %there = icmp eq <LONG> %got, 0
  %at = getelementptr i8, ptr %told, i64 <MODE_AT>
  %mode = load i16, ptr %at
  %kind = and i16 %mode, -12288
  %other = icmp ne i16 %kind, -32768
  %special = and i1 %there, %other
  br i1 %special, label %bad, label %name"""

_LOOK_LINUX = """  %got = call <LONG> (<LONG>, ...) @syscall(<LONG> <STATX>, <LONG> -100, \
ptr %path, <LONG> 0, <LONG> 1, ptr %told)"""
_LOOK_MACOS = "  %got = call i32 @<STAT>(ptr %path, ptr %told)"

# The new file is as private as the one whose place it takes, before anything stands in it.
_AS_PRIVATE = """  br i1 %there, label %private, label %fill
private:
  %allowed = and i16 %mode, 511
  %allowed.wide = zext i16 %allowed to i32
  %new = call i32 @fileno(ptr %f)
  %changed = <CHANGE>, i32 %allowed.wide)
  br label %fill"""

# The name of the new file has the process and an address of this call's stack in it, so that
# savers at the same time do not write into each other's.
_SAVE = """
define i32 @<P>_save_state(ptr %s, ptr %path) nounwind {
entry:
  %sums = alloca [<SUMS> x i8], align 8
  %no.s = icmp eq ptr %s, null
  %no.p = icmp eq ptr %path, null
  %no = or i1 %no.s, %no.p
  br i1 %no, label %null, label %named
null:
  ret i32 <NULL>
named:
  %n = call i64 @strlen(ptr %path)
  %long = icmp ugt i64 %n, <LONGEST>
  br i1 %long, label %bad, label %look
look:
<SPECIAL>
name:
  %room = add i64 %n, 24
  %part = alloca i8, i64 %room, align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %part, ptr %path, i64 %n, i1 false)
  %dot = getelementptr i8, ptr %part, i64 %n
  store i8 46, ptr %dot
  %letters = getelementptr i8, ptr %dot, i64 1
  %pid = call i32 @getpid()
  %pid.wide = zext i32 %pid to i64
  %pid.high = shl i64 %pid.wide, 40
  %here = ptrtoint ptr %part to i64
  %id = xor i64 %here, %pid.high
  br label %letter
letter:
  %k = phi i64 [ 0, %name ], [ %k.next, %letter ]
  %rest = phi i64 [ %id, %name ], [ %rest.next, %letter ]
  %low = and i64 %rest, 15
  %code = add i64 %low, 97
  %char = trunc i64 %code to i8
  %to = getelementptr i8, ptr %letters, i64 %k
  store i8 %char, ptr %to
  %rest.next = lshr i64 %rest, 4
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, 16
  br i1 %more, label %letter, label %open
open:
  %end = getelementptr i8, ptr %letters, i64 16
  store i8 0, ptr %end
  %f = call ptr @fopen(ptr %part, ptr @graphc.state.write)
  %none = icmp eq ptr %f, null
  br i1 %none, label %bad, label %made
made:
<AS_PRIVATE>
fill:
  call void @graphc.state.sums(ptr %s, ptr %sums)
  %w1 = call i64 @fwrite(ptr @graphc.state.header, i64 1, i64 <HEADER>, ptr %f)
  %w2 = call i64 @fwrite(ptr %s, i64 1, i64 <BYTES>, ptr %f)
  %w3 = call i64 @fwrite(ptr %sums, i64 1, i64 <SUMS>, ptr %f)
  %flushed = call i32 @fflush(ptr %f)
  %fd = call i32 @fileno(ptr %f)
  %synced = call i32 @fsync(i32 %fd)
  %closed = call i32 @fclose(ptr %f)
  %ok1 = icmp eq i64 %w1, <HEADER>
  %ok2 = icmp eq i64 %w2, <BYTES>
  %failed.a = or i32 %flushed, %synced
  %failed = or i32 %failed.a, %closed
  %ok3 = icmp eq i32 %failed, 0
  %ok4 = icmp eq i64 %w3, <SUMS>
  %ok12 = and i1 %ok1, %ok2
  %ok34 = and i1 %ok3, %ok4
  %ok = and i1 %ok12, %ok34
  br i1 %ok, label %place, label %drop
place:
  %renamed = call i32 @rename(ptr %part, ptr %path)
  %placed = icmp eq i32 %renamed, 0
  br i1 %placed, label %done, label %drop
done:
  ret i32 0
drop:
  %removed = call i32 @remove(ptr %part)
  br label %bad
bad:
  ret i32 <FILE>
}
"""

_LOAD = """
define i32 @<P>_load_state(ptr %s, ptr %path) nounwind {
entry:
  %no.s = icmp eq ptr %s, null
  %no.p = icmp eq ptr %path, null
  %no = or i1 %no.s, %no.p
  br i1 %no, label %null, label %open
null:
  ret i32 <NULL>
open:
  %f = call ptr @fopen(ptr %path, ptr @graphc.state.read)
  %none = icmp eq ptr %f, null
  br i1 %none, label %bad, label %make
make:
  %buffer = call ptr @malloc(i64 <ALL_AND_ONE>)
  %full = icmp eq ptr %buffer, null
  br i1 %full, label %memory, label %read
memory:
  %closed.m = call i32 @fclose(ptr %f)
  ret i32 <MEMORY>
read:
  %n = call i64 @fread(ptr %buffer, i64 1, i64 <ALL_AND_ONE>, ptr %f)
  %error = call i32 @ferror(ptr %f)
  %closed = call i32 @fclose(ptr %f)
  %fine = icmp eq i32 %error, 0
  br i1 %fine, label %check, label %drop
check:
  %status = call i32 @<P>_unpack_state(ptr %s, ptr %buffer, i64 %n)
  call void @free(ptr %buffer)
  ret i32 %status
drop:
  call void @free(ptr %buffer)
  br label %bad
bad:
  ret i32 <FILE>
}
"""


def state_text(api: Api, platform: Platform) -> str:
    """The functions above."""
    header, tail = state_header(api), api.state_bytes % 4
    first, second = sums(header)
    linux = "-linux" in platform.triple
    flag = "e" if linux else ""  # a child process does not inherit the file
    special, private, declared = _modes(platform)
    text = filled(
        _SUMS + _PACK + (_SAVE + _LOAD) * api.files, P=api.prefix, SPECIAL=special,
        AS_PRIVATE=private,
        CHECKS=_checks(len(header), file_size(api)), HEADER=len(header), BYTES=api.state_bytes,
        ALL_AND_ONE=file_size(api) + 1, SUMS=CHECKSUM, WORD_BYTES=api.state_bytes - tail,
        TAIL_BYTES=tail, TAIL="true" if tail else "false", FIRST=first, SECOND=second,
        LONGEST=_LONGEST, NULL=Status.NULL_ARGUMENT, CUT=Status.STATE_CUT,
        FILE=Status.FILE_ERROR, MEMORY=Status.OUT_OF_MEMORY,
    )
    return "\n".join([
        string_constant("@graphc.state.header", header),
        string_constant("@graphc.state.write", f"wb{flag}\0".encode()),
        string_constant("@graphc.state.read", f"rb{flag}\0".encode()),
        _DECLARE, declared, text,
    ])


def _modes(platform: Platform) -> tuple[str, str, str]:
    """What is said above of special files, and of private ones; the declarations that it needs."""
    if "-linux" in platform.triple:
        size = f"i{platform.base.pointer_bits}"
        call = f"call {size} ({size}, ...) @syscall({size}"
        return (
            filled(_SPECIAL, LOOK=_LOOK_LINUX, MODE_AT=28, LONG=size,
                   STATX=system_call(platform, "statx")),
            filled(_AS_PRIVATE, CHANGE=f"{call} {system_call(platform, 'fchmod')}, i32 %new"),
            f"declare {size} @syscall({size}, ...) nounwind",
        )
    if platform.format == "macho":
        name = "stat$INODE64" if platform.base.arch == "x86_64" else "stat"
        return (
            filled(_SPECIAL, LOOK=_LOOK_MACOS, MODE_AT=4, LONG="i32", STAT=name),
            filled(_AS_PRIVATE, CHANGE="call i32 @fchmod(i32 %new"),
            f"declare i32 @{name}(ptr, ptr)\ndeclare i32 @fchmod(i32, i32)",
        )
    return "  br label %name", "  br label %fill", ""


def _checks(header: int, whole: int) -> str:
    """What is compared with the library's own header, in this order."""
    steps = (  # from, size, the length it takes, codes of a file too short and of another one
        (0, _VERSION_END, f"sge i64 %bytes, {HASH_AT}", Status.NOT_A_STATE, Status.NOT_A_STATE),
        (HASH_AT, 8, f"sge i64 %bytes, {HASH_AT + 8}", Status.STATE_CUT, Status.OTHER_LAYOUT),
        (0, header, f"eq i64 %bytes, {whole}", Status.STATE_CUT, Status.STATE_CUT),
    )
    text = "".join(
        filled(_CHECK, K=k, NEXT=k + 1, FROM=at, SIZE=size, LENGTH=length, SHORT=short, OTHER=other)
        for k, (at, size, length, short, other) in enumerate(steps)
    )
    return f"{text}check{len(steps)}:"
