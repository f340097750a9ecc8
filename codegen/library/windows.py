"""What a Windows library has in the place of a C library: the functions it needs, on kernel32.

Every process has kernel32.dll loaded and every compiler links it, so a library neither chooses a
C runtime for its users nor mixes two. The functions are internal; what they call is imported.
"""

from __future__ import annotations

IMPORTS = (
    "CloseHandle", "CreateFileA", "DeleteFileA", "FlushFileBuffers", "GetCurrentProcessId",
    "GetEnvironmentVariableA", "GetProcessHeap", "HeapAlloc", "HeapFree", "MoveFileExA",
    "ReadFile", "WriteFile",
)


def _machine_code(signature: str, code: str) -> str:
    """A function of these bytes: LLVM has assemblers for its own machine only."""
    raw = bytes.fromhex(code)
    text = "".join(f"\\{b:02X}" for b in raw)
    return (
        f"\ndefine internal {signature} naked optnone noinline nounwind "
        f'prologue [{len(raw)} x i8] c"{text}" {{\n  unreachable\n}}\n'
    )


# LLVM touches the pages of large frames one after the other through this function: bytes in rax,
# all registers kept. The stack grows by a guard page, which must not be jumped over.
PROBE = _machine_code(
    "void @___chkstk_ms()",
    "51 50"             # push rcx; push rax
    "488d4c2418"        # lea rcx, [rsp + 24]
    "483d00100000"      # 1: cmp rax, 4096
    "7212"              # jb 2
    "4881e900100000"    # sub rcx, 4096
    "800900"            # or byte [rcx], 0
    "482d00100000"      # sub rax, 4096
    "ebe6"              # jmp 1
    "4829c1 800900"     # 2: sub rcx, rax; or byte [rcx], 0
    "58 59 c3",         # pop rax; pop rcx; ret
)
COPY = _machine_code(
    "ptr @memcpy(ptr %to, ptr %from, i64 %n)",
    "57 56"             # push rdi; push rsi
    "4889c8"            # mov rax, rcx
    "4889cf 4889d6"     # mov rdi, rcx; mov rsi, rdx
    "4c89c1 f3a4"       # mov rcx, r8; rep movsb
    "5e 5f c3",         # pop rsi; pop rdi; ret
)
FILL = _machine_code(
    "ptr @memset(ptr %to, i32 %value, i64 %n)",
    "57 4989c9"         # push rdi; mov r9, rcx
    "4889cf 89d0"       # mov rdi, rcx; mov eax, edx
    "4c89c1 f3aa"       # mov rcx, r8; rep stosb
    "4c89c8 5f c3",     # mov rax, r9; pop rdi; ret
)

MEMORY = """
declare dllimport ptr @GetProcessHeap()
declare dllimport ptr @HeapAlloc(ptr, i32, i64)
declare dllimport i32 @HeapFree(ptr, i32, ptr)
define internal ptr @malloc(i64 %n) nounwind {
  %heap = call ptr @GetProcessHeap()
  %p = call ptr @HeapAlloc(ptr %heap, i32 0, i64 %n)
  ret ptr %p
}
define internal void @free(ptr %p) nounwind {
  %heap = call ptr @GetProcessHeap()
  %r = call i32 @HeapFree(ptr %heap, i32 0, ptr %p)
  ret void
}
"""

# Short values only; whoever writes the buffer writes the same.
ENVIRONMENT = """
declare dllimport i32 @GetEnvironmentVariableA(ptr, ptr, i32)
@graphc.getenv.value = internal global [16 x i8] zeroinitializer, align 1
define internal ptr @getenv(ptr %name) nounwind {
  %n = call i32 @GetEnvironmentVariableA(ptr %name, ptr @graphc.getenv.value, i32 16)
  %less = sub i32 %n, 1
  %fits = icmp ult i32 %less, 15
  %r = select i1 %fits, ptr @graphc.getenv.value, ptr null
  ret ptr %r
}
"""

# A FILE is { handle, i32 failed }. Handles have 32 significant bits, so they serve as `fileno`.
FILES = """
declare dllimport ptr @CreateFileA(ptr, i32, i32, ptr, i32, i32, ptr)
declare dllimport i32 @ReadFile(ptr, ptr, i32, ptr, ptr)
declare dllimport i32 @WriteFile(ptr, ptr, i32, ptr, ptr)
declare dllimport i32 @FlushFileBuffers(ptr)
declare dllimport i32 @CloseHandle(ptr)
declare dllimport i32 @MoveFileExA(ptr, ptr, i32)
declare dllimport i32 @DeleteFileA(ptr)
declare dllimport i32 @GetCurrentProcessId()
declare ptr @malloc(i64)
declare void @free(ptr)
define internal ptr @fopen(ptr %path, ptr %mode) nounwind {
entry:
  %c = load i8, ptr %mode
  %write = icmp eq i8 %c, 119
  %access = select i1 %write, i32 1073741824, i32 -2147483648
  %share = select i1 %write, i32 0, i32 5
  %how = select i1 %write, i32 2, i32 3
  %f = call ptr @malloc(i64 16)
  %none = icmp eq ptr %f, null
  br i1 %none, label %bad, label %create
create:
  %h = call ptr @CreateFileA(ptr %path, i32 %access, i32 %share, ptr null, i32 %how, i32 128, \
ptr null)
  %bits = ptrtoint ptr %h to i64
  %failed = icmp eq i64 %bits, -1
  br i1 %failed, label %drop, label %good
good:
  store ptr %h, ptr %f
  %error = getelementptr i8, ptr %f, i64 8
  store i32 0, ptr %error
  ret ptr %f
drop:
  call void @free(ptr %f)
  br label %bad
bad:
  ret ptr null
}
define internal i64 @graphc.transfer(ptr %how, ptr %buffer, i64 %n, ptr %f) nounwind {
entry:
  %moved = alloca i32, align 4
  %h = load ptr, ptr %f
  br label %next
next:
  %done = phi i64 [ 0, %entry ], [ %done.next, %some ]
  %left = sub i64 %n, %done
  %small = icmp ult i64 %left, 1073741824
  %part = select i1 %small, i64 %left, i64 1073741824
  %part32 = trunc i64 %part to i32
  %nothing = icmp eq i64 %left, 0
  br i1 %nothing, label %end, label %move
move:
  %at = getelementptr i8, ptr %buffer, i64 %done
  store i32 0, ptr %moved
  %ok = call i32 %how(ptr %h, ptr %at, i32 %part32, ptr %moved, ptr null)
  %fine = icmp ne i32 %ok, 0
  br i1 %fine, label %count, label %fail
count:
  %m = load i32, ptr %moved
  %m.wide = zext i32 %m to i64
  %done.next = add i64 %done, %m.wide
  %stuck = icmp eq i32 %m, 0
  br i1 %stuck, label %end, label %some
some:
  br label %next
fail:
  %error = getelementptr i8, ptr %f, i64 8
  store i32 1, ptr %error
  br label %end
end:
  ret i64 %done
}
define internal i64 @fread(ptr %buffer, i64 %size, i64 %count, ptr %f) nounwind {
  %n = mul i64 %size, %count
  %r = call i64 @graphc.transfer(ptr @ReadFile, ptr %buffer, i64 %n, ptr %f)
  ret i64 %r
}
define internal i64 @fwrite(ptr %buffer, i64 %size, i64 %count, ptr %f) nounwind {
  %n = mul i64 %size, %count
  %r = call i64 @graphc.transfer(ptr @WriteFile, ptr %buffer, i64 %n, ptr %f)
  ret i64 %r
}
define internal i32 @ferror(ptr %f) nounwind {
  %error = getelementptr i8, ptr %f, i64 8
  %r = load i32, ptr %error
  ret i32 %r
}
define internal i32 @fflush(ptr %f) nounwind {
  ret i32 0
}
define internal i32 @fileno(ptr %f) nounwind {
  %h = load i32, ptr %f
  ret i32 %h
}
define internal i32 @fsync(i32 %fd) nounwind {
  %wide = sext i32 %fd to i64
  %h = inttoptr i64 %wide to ptr
  %ok = call i32 @FlushFileBuffers(ptr %h)
  %r = call i32 @graphc.status(i32 %ok)
  ret i32 %r
}
define internal i32 @fclose(ptr %f) nounwind {
  %h = load ptr, ptr %f
  %ok = call i32 @CloseHandle(ptr %h)
  call void @free(ptr %f)
  %r = call i32 @graphc.status(i32 %ok)
  ret i32 %r
}
define internal i32 @rename(ptr %from, ptr %to) nounwind {
  %ok = call i32 @MoveFileExA(ptr %from, ptr %to, i32 9)
  %r = call i32 @graphc.status(i32 %ok)
  ret i32 %r
}
define internal i32 @remove(ptr %path) nounwind {
  %ok = call i32 @DeleteFileA(ptr %path)
  %r = call i32 @graphc.status(i32 %ok)
  ret i32 %r
}
define internal i32 @getpid() nounwind {
  %r = call i32 @GetCurrentProcessId()
  ret i32 %r
}
define internal i32 @graphc.status(i32 %ok) nounwind {
  %failed = icmp eq i32 %ok, 0
  %r = sext i1 %failed to i32
  ret i32 %r
}
"""
