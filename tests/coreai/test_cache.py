"""The cache of specialized models: proved warm by its counts, safe for many at once, noticing damage."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import edgeproof
from tests.coreai.test_runtime import SETUP
from tests.lab import Lab

pytestmark = pytest.mark.subject

LOADING = (
    SETUP
    + """
import os, time
from pathlib import Path
folder = Path(tempfile.mkdtemp())
install_runtime(cache_dir=folder, cache_limit=2**33)
module, x = torch.nn.Linear(40, 50).eval(), torch.randn(2, 40)
pte = lowered(module, (x,)).to_executorch().buffer
def counted(pte=pte, module=module, x=x):
    before = cache_stats()
    program = Runtime.get().load_program(pte)
    assert off(module, (x,), method=program.load_method("forward")) < 1e-5
    after = cache_stats()
    return [getattr(after, n) - getattr(before, n) for n in ("hits", "misses", "damaged", "evicted")]
def entries():
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
"""
)


def run(lab: Lab, code: str) -> Any:
    return lab.run(LOADING + code)


def test_first_a_miss_then_hits(coreai_lab: Lab) -> None:
    assert run(coreai_lab, "result = [counted() for _ in range(3)]") == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [1, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "program.write_bytes(program.read_bytes()[:-1])",
        "program.write_bytes(b'x' * program.stat().st_size)",
        "program.unlink()",
        "(entry / 'entry.json').unlink()",
        "(entry / 'entry.json').write_text('{')",
        "(entry / 'entry.json').write_text('{\"files\": {}}')",
    ],
)
def test_a_damaged_entry_is_made_anew(coreai_lab: Lab, damage: str) -> None:
    first, second, third = run(
        coreai_lab,
        f"""
counted()
[entry] = entries()
program = entry / "model.aimodelx" / "main-universal.odix"
{damage}
result = [counted(), counted(), [len(entries()), 0, 0, 0]]
""",
    )
    assert first == [0, 1, 1, 0]
    assert second == [1, 0, 0, 0]
    assert third[0] == 1


def test_those_used_longest_ago_go_first(coreai_lab: Lab) -> None:
    result = run(
        coreai_lab,
        """
def other(n):
    module, x = torch.nn.Linear(40, 50 + n).eval(), torch.randn(2, 40)
    return lowered(module, (x,)).to_executorch().buffer, module, x
made = [other(n) for n in range(3)]
for m in made[:2]:
    counted(*m); time.sleep(0.05)
first, second = sorted(entries(), key=lambda p: p.stat().st_mtime)
size = sum(f.stat().st_size for f in first.rglob("*") if f.is_file())
counted(*made[0])  # used again: the second is now the one used longest ago
install_runtime(cache_limit=int(size * 2.5))
evicting = counted(*made[2])
result = [evicting, first.exists(), second.exists(), counted(*made[0]), len(entries())]
""",
    )
    evicting, first, second, again, left = result
    assert evicting == [0, 1, 0, 1]
    assert first
    assert not second
    assert again == [1, 0, 0, 0]
    assert left == 2


def test_one_that_does_not_fit_is_used_all_the_same(coreai_lab: Lab) -> None:
    result = run(coreai_lab, "install_runtime(cache_limit=1); result = [counted(), counted()]")
    assert result[0][1] == 1
    assert result[1] == [1, 0, 0, 0]


def test_a_loaded_model_outlives_its_entry(coreai_lab: Lab) -> None:
    assert (
        run(
            coreai_lab,
            """
import shutil
program = Runtime.get().load_program(pte)
method = program.load_method("forward")
shutil.rmtree(folder)
result = off(module, (x,), method=method)
""",
        )
        < 1e-5
    )


def test_a_folder_that_cannot_be_written_to(coreai_lab: Lab) -> None:
    error, said = run(
        coreai_lab,
        """
(folder / "file").write_text("")
install_runtime(cache_dir=folder / "file")
try:
    counted()
    result = ["loaded", ""]
except RuntimeError as fault:
    result = [str(fault), last_error()]
""",
    )
    assert "error: 0x:22" in error
    assert "cannot be written to" in said
    assert "coreai_cache_dir" in said


def test_threads_that_load_at_once_make_it_once(coreai_lab: Lab) -> None:
    wrong, misses, hits, left = run(
        coreai_lab,
        """
import threading
wrong, gate = [], threading.Barrier(12)
before = cache_stats()
def work():
    gate.wait()
    program = Runtime.get().load_program(pte)
    if off(module, (x,), method=program.load_method("forward")) > 1e-5:
        wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(12)]
[t.start() for t in threads]; [t.join() for t in threads]
after = cache_stats()
result = [wrong, after.misses - before.misses, after.hits - before.hits, len(entries())]
""",
    )
    assert wrong == []
    assert (misses, hits, left) == (1, 11, 1)


EMPTYING = """
import os, tempfile, threading, time
from pathlib import Path
from edgeproof.coreai.runtime.cache import Cache, cache_stats, clear
folder = Path(tempfile.mkdtemp()) / "cache"
def make(into):
    (into / "a").write_text("a" * 100)
    (into / "b").write_text("b" * 100)
def load(model):
    first = (model / "a").read_text()
    time.sleep(0.05)
    return first + (model / "b").read_text()
def many(threads, loads, cache):
    faults, gate = [], threading.Barrier(threads)
    def work(number):
        gate.wait()
        for n in range(loads):
            try:
                assert len(cache.load(str((number + n) % 5), make, load)) == 200
            except Exception as fault:
                faults.append(repr(fault))
    started = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    [t.start() for t in started]
    return started, faults
"""


def test_loads_succeed_while_others_outgrow_the_limit(coreai_lab: Lab) -> None:
    faults, damaged, total = coreai_lab.run(
        EMPTYING
        + """
before = cache_stats()
started, faults = many(8, 6, Cache(folder, limit=1))
[t.join() for t in started]
after = cache_stats()
result = [faults, after.damaged - before.damaged, after.hits + after.misses - before.hits - before.misses]
"""
    )
    assert faults == []
    assert damaged == 0
    assert total == 48


@pytest.mark.parametrize("how", ["clear(folder)", "shutil.rmtree(folder, ignore_errors=True)"])
def test_loads_succeed_while_the_folder_is_cleared(coreai_lab: Lab, how: str) -> None:
    """By us, or by something that knows nothing of locks and entries."""
    faults, damaged, left = coreai_lab.run(
        EMPTYING
        + f"""
import shutil
before = cache_stats()
started, faults = many(6, 6, Cache(folder))
while any(t.is_alive() for t in started):
    {how}
    time.sleep(0.02 if "clear" in {how!r} else 0.4)
clear(folder)
left = [p for p in folder.iterdir() if not p.name.startswith(".lock")] if folder.exists() else []
result = [faults, cache_stats().damaged - before.damaged, len(left)]
"""
    )
    if how.startswith("clear"):
        assert faults == []
        assert damaged == 0
        assert left == 0
    else:
        # Half removed is damaged, and a folder that is gone while it is written to is an error of its own.
        assert all("cannot be written to" in fault for fault in faults), faults


def test_processes_load_while_one_clears(coreai_lab: Lab, tmp_path: Path) -> None:
    python = coreai_lab.run("import sys; result = sys.executable")
    code = EMPTYING.replace('Path(tempfile.mkdtemp()) / "cache"', f"Path({str(tmp_path)!r})")
    code += "started, faults = many(2, 15, Cache(folder, limit=1))\n"
    code += "while any(t.is_alive() for t in started):\n    clear(folder); time.sleep(0.01)\n"
    code += "print(faults, cache_stats().damaged)"
    sources = str(Path(edgeproof.__file__).parent.parent)
    processes = [
        subprocess.Popen(
            [python, "-c", code],
            env={**os.environ, "PYTHONPATH": sources},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert [p.communicate()[0].strip() for p in processes] == ["[] 0"] * 4


def test_an_entry_that_is_being_loaded_stays(coreai_lab: Lab) -> None:
    assert coreai_lab.run(
        EMPTYING
        + """
cache, seen = Cache(folder), []
cache.load("one", make, load)
def looking(model):
    clear(folder)
    seen.append(model.exists())
    return load(model)
cache.load("one", make, looking)
clear(folder)
result = [seen, [p.name for p in folder.iterdir() if not p.name.startswith(".lock")]]
"""
    ) == [[True], []]


@pytest.mark.parametrize("fault", ["OSError(24, 'Too many open files')", "MemoryError()"])
def test_a_good_entry_survives_what_is_not_its_fault(coreai_lab: Lab, fault: str) -> None:
    said, made, stats = coreai_lab.run(
        EMPTYING
        + f"""
cache, made = Cache(folder), []
def counting(into):
    made.append(1)
    make(into)
cache.load("one", counting, load)
def failing(model):
    raise {fault}
before = cache_stats()
try:
    cache.load("one", counting, failing)
    said = "loaded"
except Exception as raised:
    said = type(raised).__name__
cache.load("one", counting, load)
after = cache_stats()
result = [said, len(made), [after.hits - before.hits, after.misses - before.misses,
                            after.damaged - before.damaged]]
"""
    )
    assert said == fault.split("(")[0]
    assert made == 1
    assert stats == [1, 0, 0]


def test_an_entry_stays_while_files_cannot_be_opened(coreai_lab: Lab) -> None:
    """The process's own limit, reached while the checksums are taken."""
    said, damaged, again = coreai_lab.run(
        EMPTYING
        + """
import resource
from edgeproof.coreai.runtime import cache as caches
cache = Cache(folder)
cache.load("one", make, load)
before, real = cache_stats(), caches._checksum
def none_left(path):
    raise OSError(24, "Too many open files")
caches._checksum = none_left
try:
    cache.load("one", make, load)
    said = "loaded"
except OSError as fault:
    said = str(fault)
caches._checksum = real
cache.load("one", make, load)
after = cache_stats()
result = [said, after.damaged - before.damaged, after.hits - before.hits]
"""
    )
    assert "Too many open files" in said
    assert damaged == 0
    assert again == 1


def test_locks_are_few_whatever_was_kept(coreai_lab: Lab) -> None:
    assert (
        coreai_lab.run(
            EMPTYING
            + """
cache = Cache(folder, limit=1)
for n in range(60):
    cache.load(str(n), make, lambda model: None)
result = len([p for p in folder.iterdir() if p.name.startswith(".")])
"""
        )
        <= 17
    )


def test_what_a_killed_process_left_is_removed_after_a_day(coreai_lab: Lab) -> None:
    assert coreai_lab.run(
        EMPTYING
        + """
folder.mkdir()
for name, age in (("old", 25), ("new", 23)):
    (folder / f".tmp-{name}").mkdir()
    (folder / f".tmp-{name}" / "half").write_text("x")
    os.utime(folder / f".tmp-{name}", (time.time() - age * 3600,) * 2)
Cache(folder).load("one", make, load)
result = sorted(p.name for p in folder.iterdir() if p.name.startswith(".tmp"))
"""
    ) == [".tmp-new"]


@pytest.mark.parametrize("late", [False, True])
def test_a_full_disk_is_named_and_leaves_nothing(coreai_lab: Lab, late: bool) -> None:
    """A process that may write small files alone stands for it: writing fails in the middle of a model.

    When the asset is written, or ``late``, in Core AI itself.
    """
    python = coreai_lab.run("import sys; result = sys.executable")
    code = (
        LOADING
        + f"late = {late}\n"
        + """
import resource, signal
from edgeproof.coreai.runtime import asset
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
module, x = torch.nn.Linear(400, 500).eval(), torch.randn(2, 400)
pte = lowered(module, (x,)).to_executorch().buffer
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
def fill():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
write_to = asset.Asset.write_to
def and_fill(*args):
    path = write_to(*args)
    fill()
    return path
if late:
    asset.Asset.write_to = and_fill
else:
    fill()
try:
    Runtime.get().load_program(pte).load_method("forward")
    result = ["loaded"]
except RuntimeError as fault:
    result = [str(fault)]
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
asset.Asset.write_to = write_to
result += [last_error(), [p.name for p in folder.iterdir() if not p.name.startswith(".lock")], counted()]
print(json.dumps(result))
"""
    )
    done = subprocess.run(
        [python, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(edgeproof.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    error, said, left, after = json.loads(done.stdout.splitlines()[-1])
    assert "error: 0x:22" in error
    assert "cannot be written to" in said
    assert "free space there" in said
    assert left == []
    assert after == [0, 1, 0, 0]
