"""Assets: the same bytes everywhere, named by all of them, and a boundary that is checked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import edgeproof
from tests.coreai.test_runtime import SETUP
from tests.lab import Lab

pytestmark = pytest.mark.subject

ASSETS = (
    SETUP
    + """
import hashlib, os
from edgeproof.flows.delegates import delegates
def parts(module, inputs, **options):
    return delegates(lowered(module, inputs, **options))
def files(part):
    store = part.named_data_store_output
    return {k: bytes(store.buffers[e.buffer_index]) for k, e in store.pte_data.items()}
torch.manual_seed(0)
big = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 40)).eval()
picture = torch.randn(1, 3, 8, 8)
"""
)


def run(lab: Lab, code: str) -> Any:
    return lab.run(ASSETS + code)


def test_a_program_is_the_same_bytes_in_another_process_and_folder(
    coreai_lab: Lab, tmp_path: Path
) -> None:
    """Constants of Core AI are named by a hash seeded anew in each process, metadata by the second."""
    python = coreai_lab.run("import sys; result = sys.executable")
    code = (
        ASSETS
        + """
part = parts(big, (picture,))[0]
everything = b"".join(k.encode() + v for k, v in sorted(files(part).items()))
print(hashlib.sha256(part.processed_bytes + everything).hexdigest())
assert b"site-packages" not in everything and os.getcwd().encode() not in everything
"""
    )
    digests = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(code)
        done = subprocess.run(
            [python, f"{name}.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(edgeproof.__file__).parent.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        digests.append(done.stdout.split()[-1])
    assert digests[0] == digests[1]


def test_debug_information_is_in_the_asset_when_asked_for_alone(coreai_lab: Lab) -> None:
    without, with_it = run(
        coreai_lab,
        """
def has_paths(part):
    return any(b"torch/nn/modules" in content for content in files(part).values())
result = [has_paths(parts(big, (picture,), partitioner=CoreAIPartitioner(debug_info=d))[0])
          for d in (False, True)]
""",
    )
    assert not without
    assert with_it


def test_the_date_is_that_of_source_date_epoch(coreai_lab: Lab) -> None:
    fixed, given, wrong = run(
        coreai_lab,
        """
def date():
    part = parts(torch.nn.ReLU(), (torch.randn(3),))[0]
    [metadata] = [v for k, v in files(part).items() if k.endswith("metadata.json")]
    return json.loads(metadata)["creationDate"]
result = [date()]
os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
result.append(date())
os.environ["SOURCE_DATE_EPOCH"] = "yesterday"
try:
    date()
except ValueError as fault:
    result.append(str(fault))
del os.environ["SOURCE_DATE_EPOCH"]
""",
    )
    assert fixed == "19800101T000000Z"
    assert given == "20231114T221320Z"
    assert "SOURCE_DATE_EPOCH is a number of seconds" in wrong


def test_assets_that_differ_in_anything_have_other_names(coreai_lab: Lab) -> None:
    names = run(
        coreai_lab,
        """
from edgeproof.coreai.runtime.asset import bundle_hash
base = {"model.aimodel/a": b"12", "model.aimodel/b": b"3"}
result = [bundle_hash(f) for f in (
    base,
    {"model.aimodel/a": b"1", "model.aimodel/b": b"23"},
    {"model.aimodel/a": b"12", "model.aimodel/c": b"3"},
    {"model.aimodel/a1": b"2", "model.aimodel/b": b"3"},
    {"model.aimodel/a": b"12", "model.aimodel/b": b"3", "states/0.bin": b""},
)] + [bundle_hash(dict(reversed(base.items())))]
""",
    )
    assert len(set(names[:5])) == 5
    assert names[5] == names[0]


def test_the_manifest_has_what_apples_delegate_reads(coreai_lab: Lab) -> None:
    """The fields and keys that executorch's own lowering writes, and its packaging."""
    ours, released, keys = run(
        coreai_lab,
        """
from edgeproof.coreai.lowering import lower_released
program = torch.export.export(big, (picture,))
[ours], [theirs] = delegates(lower(program)), delegates(lower_released(program))
result = [json.loads(ours.processed_bytes), json.loads(theirs.processed_bytes), sorted(files(ours))]
assert ours.backend_id == theirs.backend_id == "CoreAIBackend"
""",
    )
    assert set(ours) == {*released, "edgeproof"}
    assert ours["files"] == released["files"]
    assert ours["packaging"] == released["packaging"] == "inline"
    assert ours["path"] == f"{ours['hash']}/model.aimodel"
    assert keys == [f"coreai/{ours['hash']}/{name}" for name in sorted(ours["files"])]


def test_a_program_of_the_wheels_own_lowering_runs_and_is_checked(coreai_lab: Lab) -> None:
    worst, refused = run(
        coreai_lab,
        """
from edgeproof.coreai.lowering import lower_released
pte = lower_released(torch.export.export(big, (picture,))).to_executorch().buffer
program = Runtime.get().load_program(pte)
result = [off(big, (picture,), method=program.load_method("forward"))]
edited = bytearray(pte)
edited[pte.index(b"MLIR22") + 40] ^= 1
try:
    Runtime.get().load_program(bytes(edited)).load_method("forward")
    result.append("loaded")
except RuntimeError:
    result.append(last_error())
""",
    )
    assert worst < 1e-4
    assert "are not those it was made with" in refused


def test_both_lowerings_stay_themselves_in_one_process(coreai_lab: Lab) -> None:
    """Backends are found by the name of their class, and both have the name that goes into the program."""
    marked = run(
        coreai_lab,
        """
from edgeproof.coreai.lowering import lower_released
program = torch.export.export(torch.nn.ReLU(), (torch.randn(3),))
result = ["edgeproof" in json.loads(delegates(f(program))[0].processed_bytes)
          for f in (lower, lower_released, lower, lower_released)]
""",
    )
    assert marked == [True, False, True, False]


@pytest.mark.parametrize(
    ("declared", "given", "says"),
    [
        ([("f32", (2, 3))], [("x", "zeros(2, 3)")], ""),
        ([("f32", (None, 3))], [("x", "zeros(2, 3)")], ""),
        ([("f16", (2, 3))], [("x", "zeros(2, 3)")], "input 'x' is torch.float32 here, f16"),
        ([("f32", (2, 4))], [("x", "zeros(2, 3)")], "input 'x', dimension 1, is 3 here, 4"),
        ([("f32", (2,))], [("x", "zeros(2, 3)")], "input 'x' has 2 dimensions here, 1"),
        ([], [("x", "zeros(2, 3)")], "declares 0 inputs, ExecuTorch has 1 (x)"),
        ([("!coreai.token", None)], [("x", "zeros(2, 3)")], "input 'x' is no tensor"),
        ([("si32", ())], [("x", "zeros((), dtype=torch.int64)")], "input 'x' is torch.int64 here"),
    ],
)
def test_the_boundary_is_compared_by_name(
    coreai_lab: Lab, declared: Any, given: Any, says: str
) -> None:
    values = ", ".join(f"({name!r}, torch.{value})" for name, value in given)
    said = run(
        coreai_lab,
        f"""
from edgeproof.coreai.compiler.interface import _mismatches
result = "; ".join(_mismatches("input", {declared!r}, [{values}]))
""",
    )
    assert (says in said) if says else said == ""


def test_a_size_that_varies_here_and_not_there_is_refused(coreai_lab: Lab) -> None:
    said = run(
        coreai_lab,
        """
from edgeproof.coreai.compiler.interface import _mismatches
rows = torch.export.Dim("rows", min=2, max=8)
program = torch.export.export(torch.nn.ReLU(), (torch.randn(4, 3),), dynamic_shapes=({0: rows},))
[node] = [n for n in program.graph.nodes if n.op == "placeholder"]
result = ["; ".join(_mismatches("input", [("f32", (theirs, 3))], [("x", node.meta["val"])]))
          for theirs in (4, None)]
""",
    )
    assert "input 'x', dimension 0, is s" in said[0]
    assert said[1] == ""


def test_the_program_that_was_lowered_can_still_be_run(coreai_lab: Lab) -> None:
    """Lowering takes constants out of tables that the program it is given would need again."""
    worst, names = run(
        coreai_lab,
        """
class WithConstant(torch.nn.Module):
    def forward(self, x):
        return x * torch.tensor([1., 2., 3.]) + torch.tensor(4.)
program = torch.export.export(WithConstant(), (torch.randn(3),))
names = sorted(program.constants)
lower(program)
x = torch.randn(3)
result = [float((program.module()(x) - WithConstant()(x)).abs().max()), names]
assert sorted(program.constants) == names
""",
    )
    assert names
    assert worst == 0


def test_outputs_in_torchs_named_tuples_are_plain_ones(coreai_lab: Lab) -> None:
    """ExecuTorch cannot write down torch.return_types, and ends in a NotImplementedError."""
    worst, kind = run(
        coreai_lab,
        """
module, x = Fn(lambda x: torch.median(x, 1)), torch.randn(3, 5)
program = torch.export.export(module, (x,))
loaded_ = Runtime.get().load_program(lower(program).to_executorch().buffer)
got, right = loaded_.load_method("forward").execute((x,)), module(x)
result = [float((got[0] - right[0]).abs().max() + (got[1] - right[1]).abs().max()),
          type(program.module()(x)).__name__]
""",
    )
    assert worst == 0
    assert kind == "median"
