"""The rules of what is kept out: each is needed, and the docs list them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.coreai.conftest import Sweep
from tests.lab import Lab

pytestmark = pytest.mark.subject

PROOFS = {
    "alpha": ("add/alpha", "sub/alpha"),
    "implicit-dims": ("amax/whole", "amin/whole"),
    "squeeze": ("squeeze/not one",),
    "avg-pool": ("avg_pool2d/ceil_mode", "avg_pool3d/count_include_pad", "avg_pool2d/unbatched"),
    "max-pool": ("max_pool2d/ceil last window left out", "max_pool2d/unbatched"),
    "adaptive-pool": ("adaptive_avg_pool2d/unbatched", "adaptive_avg_pool2d/larger than input"),
    "transposed-conv3d": ("conv_transpose3d/default",),
    "accumulate": ("index_put/accumulate",),
    "mask-index": ("index_put/mask all false",),
    "broadcast-values": ("index_put/rows broadcast",),
    "short-gather": ("gather/dim 0",),
    "short-scatter": ("scatter/dim 0",),
    "zero-dim-reduction": ("sum/whole zero-dim", "prod/whole zero-dim"),
    "no-elements": ("atan2/empty", "view/empty"),
    "of-nothing": ("sum/empty large",),
    "rounded-numbers": ("arange/float step", "scalar_tensor/0.1"),
    "large-numbers": ("eq/u8 with 300",),
    "channels": ("instance_norm/affine", "batch_norm/no affine"),
    "crop": ("pad/replicate negative",),
    "to-zero-dim": ("view/to zero-dim",),
    "bool-extremum": ("amax/bool",),
    "any-of-bytes": ("any/u8",),
    "beta-zero": ("addmm/beta 0",),
    "bool-arithmetic": ("add/bool", "mul/bool", "lt/bool"),
    "nan-order": ("le/special", "ge/special"),
    "float-of-integers": ("exp/i32", "sqrt/i32"),
    "bitwise-not": ("bitwise_not/i32",),
    "remainder": ("remainder/special",),
    "integer-power": ("pow/i32 with f32",),
    "integer-clamp": ("clamp/i32 large", "clamp/i32 by float"),
    "batch-norm": ("batch_norm/no affine",),
    "norm-statistics": ("layer_norm/mean and rstd",),
    "nearest": ("nearest/3x4", "nearest/scale 1.7"),
    "single-corner": ("bilinear/1x1 align_corners",),
}
"""For each rule cases of the sweep that, delegated by force, do not come out right."""

VARYING = {"channels"}
"""The rules whose cases are to have sizes that vary."""

RULES = "from edgeproof.coreai.partition import RULES\n"


@pytest.mark.parametrize("rule", PROOFS)
def test_a_rule_is_needed(sweep: Sweep, rule: str) -> None:
    known = set(sweep.names())
    assert known.issuperset(PROOFS[rule])
    found = {
        name: sweep.check([name], forced=True, dynamic=rule in VARYING)[name]
        for name in PROOFS[rule]
    }
    right = [name for name, one in found.items() if one["outcome"] == "right"]
    assert all(found[name]["delegates"] for name in right), "it was not delegated at all"
    assert not right, (
        f"the rule {rule!r} can be dropped: {right} come out right when delegated by force"
    )


def test_every_rule_has_a_proof(coreai_lab: Lab) -> None:
    names = coreai_lab.run(RULES + "result = [rule.name for rule in RULES]")
    assert names == list(PROOFS)


def test_the_docs_list_the_rules(coreai_lab: Lab) -> None:
    rules = coreai_lab.run(RULES + "result = [[r.name, r.reason, r.mended_by] for r in RULES]")
    page = (Path(__file__).parents[2] / "docs" / "coreai.md").read_text()
    rows = [list(row) for row in re.findall(r"^\| `([\w-]+)` \| (.+?) \| (.*?) \|$", page, re.M)]
    assert rows == [[n, reason, f"`{by}`" if by else ""] for n, reason, by in rules]
