"""The cache of specialized models: proved warm by its counts, safe for many at once, noticing damage."""

from __future__ import annotations

from typing import Any

import pytest

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
