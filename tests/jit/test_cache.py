"""The object cache: hits, damage, privacy, bounded size."""

import os
import warnings

import handmade
import pytest

import graphc
from graphc import codegen, passes
from graphc.codegen.machine import cache, llvm
from graphc.codegen.machine.target import host


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "objects"
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(path))
    return path


def test_hit_is_the_same_object(home, monkeypatch):
    first = llvm.compile_object(handmade.INCREMENT, host())
    (entry,) = home.iterdir()
    assert os.stat(home).st_mode & 0o777 == 0o700
    monkeypatch.setattr(llvm, "_generate", lambda *a: pytest.fail("compiled again"))
    assert llvm.compile_object(handmade.INCREMENT, host()) == first
    assert entry.read_bytes()[32:] == first


def test_key_depends_on_target_and_text(home):
    from graphc.codegen.machine.target import x86

    llvm.compile_object(handmade.INCREMENT, x86("v2"))
    llvm.compile_object(handmade.INCREMENT, x86("v3"))
    llvm.compile_object(handmade.INCREMENT + "\n", x86("v3"))
    assert len(list(home.iterdir())) == 3


def test_key_depends_on_files_of_graphc_alone():
    """Not on what lies beside them in a checkout: environments, say, of thousands of files."""
    files = cache.installation().split("\n")[1:]
    packages = [os.path.dirname(p.__file__) for p in (graphc, passes, codegen)]
    there = {
        os.path.join(folder, name)
        for package in packages for folder, _, names in os.walk(package) for name in names
        if name.endswith(".py")
    }
    assert len(files) == len(there)


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 500])
def test_damaged_entry_is_compiled_again(home, damage):
    first = llvm.compile_object(handmade.INCREMENT, host())
    (entry,) = home.iterdir()
    entry.write_bytes(damage)
    assert llvm.compile_object(handmade.INCREMENT, host()) == first
    assert entry.read_bytes()[32:] == first


def test_directory_of_others_is_not_used(home):
    home.mkdir(mode=0o755)
    os.chmod(home, 0o755)
    with pytest.warns(RuntimeWarning, match=r"objects is not used.*\(mode 755\); chmod 700 it"):
        assert cache.directory() is None
    with warnings.catch_warnings(action="error"):  # said once
        assert cache.directory() is None
    assert llvm.compile_object(handmade.INCREMENT, host())
    assert not list(home.iterdir())


@pytest.mark.parametrize("named", ("", "relative"))
def test_no_folder_is_made_where_python_happens_to_be(tmp_path, monkeypatch, named):
    """Users of containers may have no home: ~ stays ~."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHC_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache.directory() is None and not os.listdir()


def test_unusable_directory_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match="below is not used.*Not a directory"):
        assert llvm.compile_object(handmade.INCREMENT, host())
    monkeypatch.setenv("GRAPHC_CACHE_DIR", "")
    with warnings.catch_warnings(action="error"):
        assert llvm.compile_object(handmade.INCREMENT, host())


def test_sweep_drops_what_was_used_longest_ago(home):
    home.mkdir(mode=0o700)
    for i in range(5):
        (home / f"{i}.o").write_bytes(b"x" * 100)
        os.utime(home / f"{i}.o", (i, i))
    cache.sweep(str(home), limit=250)
    assert sorted(p.name for p in home.iterdir()) == ["3.o", "4.o"]


def test_sweeps_at_once_keep_what_one_would(home, monkeypatch):
    """Another process removes the same files, a moment earlier."""
    home.mkdir(mode=0o700)
    for i in range(5):
        (home / f"{i}.o").write_bytes(b"x" * 100)
        os.utime(home / f"{i}.o", (i, i))
    unlink = os.unlink

    def twice(path):
        unlink(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", twice)
    cache.sweep(str(home), limit=250)
    assert sorted(p.name for p in home.iterdir()) == ["3.o", "4.o"]


def test_objects_hold_no_addresses(home):
    """Two processes make the same bytes: nothing of this one is baked in."""
    import subprocess
    import sys

    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import handmade, hashlib;"
        "from graphc.codegen.calling import wrapper; from graphc.codegen.machine import llvm;"
        "from graphc.codegen.machine.target import host;"
        "t = wrapper.Wrapper(handmade.increment(), 'one', 0, False).text();"
        "print(hashlib.sha256(llvm.compile_object(t, host(), use_cache=False)).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != ""
