"""Compiled objects on disk.

An entry is one file, KEY.o: the SHA-256 of the object, then the object. KEY is the SHA-256 of
everything that decides the object's bytes, so entries never go stale, and objects hold no
absolute addresses. An entry that is damaged is as good as none. The directory must be private to
the user (0700), because its contents are executed; one that is not is left alone and unused.

GRAPHC_CACHE_DIR names the directory; set but empty, it turns the cache off. Who names one that is
not used hears why.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import stat
import sys
import warnings

LIMIT_BYTES = 512 << 20
_SWEEP_ONE_IN = 64  # stores: keys are random, so they decide which of them looks at the size


def key(*parts: str) -> str:
    """The name of the entry that these parts decide."""
    h = hashlib.sha256()
    for p in parts:
        data = p.encode()
        h.update(b"%d:" % len(data))
        h.update(data)
    return h.hexdigest()


@functools.cache
def installation() -> str:
    """The interpreter, and the names, sizes and times of graphc's own files: edits count."""
    found = [sys.version]
    folders: dict[str, None] = {}
    for package in ("graphc", "graphc.passes", "graphc.codegen"):  # folders of their own in a clone
        spec = importlib.util.find_spec(package)  # without importing it
        if spec is not None and spec.origin is not None:
            folders[os.path.dirname(spec.origin)] = None
    waiting = [*folders]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for f in sorted(entries, key=lambda f: f.name):
                if f.name.endswith(".py"):
                    info = f.stat()
                    found.append(f"{f.name} {info.st_size} {info.st_mtime_ns}")
                elif f.is_dir() and f.name != "__pycache__" and f.path not in folders:
                    waiting.append(f.path)
    return "\n".join(found)


def directory() -> str | None:
    """The cache directory, made if missing; None where there is no safe one."""
    named = os.environ.get("GRAPHC_CACHE_DIR")
    if named is not None:
        problem = unusable(named) if named else ""
        if problem:
            unused(named, problem)
        return named if named and not problem else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):  # a user without a home, or against the XDG specification
        return None
    path = os.path.join(base, "graphc")
    return None if unusable(path) else path


def unusable(path: str) -> str:
    """What keeps objects out of this directory, which is made if missing; "" if nothing does."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        info = os.lstat(path)
    except OSError as problem:
        return str(problem.strerror or problem)
    if not stat.S_ISDIR(info.st_mode):
        return "it is a link, not a directory"
    if hasattr(os, "geteuid"):
        if info.st_uid != os.geteuid():
            return "it belongs to another user"
        if info.st_mode & 0o077:
            return f"others may enter it (mode {info.st_mode & 0o777:o}); chmod 700 it"
    return ""


@functools.cache
def unused(path: str, problem: str) -> None:
    """Warn, once in a process."""
    warnings.warn(
        f"GRAPHC_CACHE_DIR={path} is not used, so that everything is compiled anew: {problem}",
        RuntimeWarning, stacklevel=2,
    )


def load(name: str) -> bytes | None:
    """The object stored under this key, or None."""
    home = directory()
    if home is None:
        return None
    path = os.path.join(home, name + ".o")
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError:
        return None
    if len(data) <= 32 or hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the sweep drops what was used longest ago
    return data[32:]


def store(name: str, obj: bytes) -> None:
    """Keep an object; failures (full disk, no directory) are ignored, it is only a cache."""
    home = directory()
    if home is None:
        return
    import tempfile

    temporary = None
    try:
        fd, temporary = tempfile.mkstemp(prefix=".new-", dir=home)
        with os.fdopen(fd, "wb") as f:
            f.write(hashlib.sha256(obj).digest())
            f.write(obj)
        os.replace(temporary, os.path.join(home, name + ".o"))
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    if int(name[:2], 16) < 256 // _SWEEP_ONE_IN:
        sweep(home)


def sweep(home: str, limit: int | None = None) -> None:
    """Remove the entries used longest ago until the directory is within its limit."""
    limit = LIMIT_BYTES if limit is None else limit
    entries = []
    try:
        with os.scandir(home) as files:
            for f in files:
                if f.name.endswith(".o") or f.name.startswith(".new-"):
                    with contextlib.suppress(FileNotFoundError):  # others sweep, too
                        info = f.stat(follow_symlinks=False)
                        entries.append((info.st_mtime_ns, info.st_size, f.path))
    except OSError:
        return
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size
