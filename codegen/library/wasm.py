"""What a wasm32 library has in the place of a C library.

An object (.o, .a) needs `malloc` and `free` of whatever it is linked with. A module (.wasm) has
its own, which it also exports for its callers' arrays; it imports nothing.
"""

from __future__ import annotations

# Signed 64-bit products with a check for overflow become calls of this one (the low 128 bits of
# a product, by 32-bit digits).
MULTIPLY = """
define internal void @__multi3(ptr %out, i64 %al, i64 %ah, i64 %bl, i64 %bh) nounwind {
  %a0 = and i64 %al, 4294967295
  %a1 = lshr i64 %al, 32
  %b0 = and i64 %bl, 4294967295
  %b1 = lshr i64 %bl, 32
  %p00 = mul i64 %a0, %b0
  %p01 = mul i64 %a0, %b1
  %p10 = mul i64 %a1, %b0
  %p11 = mul i64 %a1, %b1
  %carry = lshr i64 %p00, 32
  %m = add i64 %p01, %carry
  %m.low = and i64 %m, 4294967295
  %m.high = lshr i64 %m, 32
  %n = add i64 %p10, %m.low
  %n.low = shl i64 %n, 32
  %n.high = lshr i64 %n, 32
  %p00.low = and i64 %p00, 4294967295
  %low = or i64 %n.low, %p00.low
  %h1 = add i64 %p11, %m.high
  %h2 = add i64 %h1, %n.high
  %c1 = mul i64 %al, %bh
  %c2 = mul i64 %ah, %bl
  %c = add i64 %c1, %c2
  %high = add i64 %h2, %c
  store i64 %low, ptr %out, align 8
  %out.high = getelementptr i8, ptr %out, i32 8
  store i64 %high, ptr %out.high, align 8
  ret void
}
"""

# Free blocks { i32 bytes, ptr next } in a list by address, neighbours joined; every block begins
# with 16 bytes that hold its size. The first fit is taken, from its upper end.
ALLOCATOR = """
@__heap_base = external global i8
@first = internal global ptr null, align 4
@ready = internal global i32 0, align 4
declare i32 @llvm.wasm.memory.size.i32(i32)
declare i32 @llvm.wasm.memory.grow.i32(i32, i32)
define ptr @malloc(i32 %bytes) nounwind {
entry:
  %huge = icmp ugt i32 %bytes, 2147418112
  br i1 %huge, label %none, label %size
size:
  %up = add i32 %bytes, 31
  %need = and i32 %up, -16
  %known = load i32, ptr @ready
  %is = icmp ne i32 %known, 0
  br i1 %is, label %search, label %start
start:
  store i32 1, ptr @ready
  %base = ptrtoint ptr @__heap_base to i32
  %base.up = add i32 %base, 15
  %begin = and i32 %base.up, -16
  %pages = call i32 @llvm.wasm.memory.size.i32(i32 0)
  %end = shl i32 %pages, 16
  %have = sub i32 %end, %begin
  %some = icmp uge i32 %have, 16
  br i1 %some, label %put, label %search
put:
  %begin.at = inttoptr i32 %begin to ptr
  call void @insert(ptr %begin.at, i32 %have)
  br label %search
search:
  br label %look
look:
  %link = phi ptr [ @first, %search ], [ %link.next, %next ]
  %block = load ptr, ptr %link
  %over = icmp eq ptr %block, null
  br i1 %over, label %grow, label %fits
fits:
  %has = load i32, ptr %block
  %enough = icmp uge i32 %has, %need
  br i1 %enough, label %take, label %next
next:
  %link.next = getelementptr i8, ptr %block, i32 4
  br label %look
take:
  %rest = sub i32 %has, %need
  %splits = icmp uge i32 %rest, 32
  br i1 %splits, label %split, label %whole
split:
  store i32 %rest, ptr %block
  %upper = getelementptr i8, ptr %block, i32 %rest
  store i32 %need, ptr %upper
  br label %done
whole:
  %next.at = getelementptr i8, ptr %block, i32 4
  %follower = load ptr, ptr %next.at
  store ptr %follower, ptr %link
  br label %done
done:
  %taken = phi ptr [ %upper, %split ], [ %block, %whole ]
  %p = getelementptr i8, ptr %taken, i32 16
  ret ptr %p
grow:
  %need.up = add i32 %need, 65535
  %more = lshr i32 %need.up, 16
  %old = call i32 @llvm.wasm.memory.grow.i32(i32 0, i32 %more)
  %refused = icmp eq i32 %old, -1
  br i1 %refused, label %none, label %grown
grown:
  %new = shl i32 %old, 16
  %new.at = inttoptr i32 %new to ptr
  %new.bytes = shl i32 %more, 16
  call void @insert(ptr %new.at, i32 %new.bytes)
  br label %search
none:
  ret ptr null
}
define void @free(ptr %p) nounwind {
entry:
  %null = icmp eq ptr %p, null
  br i1 %null, label %done, label %give
give:
  %block = getelementptr i8, ptr %p, i32 -16
  %bytes = load i32, ptr %block
  call void @insert(ptr %block, i32 %bytes)
  br label %done
done:
  ret void
}
define internal void @insert(ptr %block, i32 %bytes) nounwind {
entry:
  br label %look
look:
  %link = phi ptr [ @first, %entry ], [ %link.next, %on ]
  %before = phi ptr [ null, %entry ], [ %after, %on ]
  %after = load ptr, ptr %link
  %last = icmp eq ptr %after, null
  br i1 %last, label %found, label %compare
compare:
  %lower = icmp ult ptr %after, %block
  br i1 %lower, label %on, label %found
on:
  %link.next = getelementptr i8, ptr %after, i32 4
  br label %look
found:
  %end = getelementptr i8, ptr %block, i32 %bytes
  %touches = icmp eq ptr %end, %after
  %joins = xor i1 %last, true
  %join.after = and i1 %touches, %joins
  br i1 %join.after, label %swallow, label %below
swallow:
  %after.bytes = load i32, ptr %after
  %after.next.at = getelementptr i8, ptr %after, i32 4
  %after.next = load ptr, ptr %after.next.at
  %sum = add i32 %bytes, %after.bytes
  br label %below
below:
  %size = phi i32 [ %bytes, %found ], [ %sum, %swallow ]
  %following = phi ptr [ %after, %found ], [ %after.next, %swallow ]
  %first = icmp eq ptr %before, null
  br i1 %first, label %alone, label %meet
meet:
  %before.bytes = load i32, ptr %before
  %before.end = getelementptr i8, ptr %before, i32 %before.bytes
  %adjoins = icmp eq ptr %before.end, %block
  br i1 %adjoins, label %extend, label %alone
extend:
  %longer = add i32 %before.bytes, %size
  store i32 %longer, ptr %before
  %before.next = getelementptr i8, ptr %before, i32 4
  store ptr %following, ptr %before.next
  ret void
alone:
  store i32 %size, ptr %block
  %block.next = getelementptr i8, ptr %block, i32 4
  store ptr %following, ptr %block.next
  store ptr %block, ptr %link
  ret void
}
"""
EXPORTS = ("malloc", "free")
