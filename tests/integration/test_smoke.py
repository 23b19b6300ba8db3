"""First light: one command, every backend that Linux can carry, from clean environments."""

from __future__ import annotations

import jsonschema
import pytest

from edgeproof.flows.registry import in_smoke
from edgeproof.plan.stage import Stage
from tests.integration.conftest import SCHEMA, Ran

pytestmark = pytest.mark.subject

RUNS = {
    "portable_fp32",
    "xnnpack_fp32",
    "xnnpack_int8_dynamic",
    "xnnpack_int8_static",
    "openvino_fp32",
    "openvino_int8",
    "qnn_fp16",
    "qnn_8a8w",
    "coreai_fp32",
    "coreai_fp16",
    "coreai_w8a8",
    "coreai_w8",
}
LOWERS = {"coreml_fp32", "coreml_fp16"}


def test_it_ends_0_with_a_row_for_every_flow(smoke: Ran) -> None:
    assert smoke.code == 0, smoke.out
    assert "gate: holds" in smoke.out
    rows = {line.split()[0]: line for line in smoke.out.splitlines() if line.strip()}
    for name in in_smoke():
        assert name in rows
    assert {c["flow"] for c in smoke.report["cells"]} == set(in_smoke()) == RUNS | LOWERS


def test_every_backend_that_runs_here_passed(smoke: Ran) -> None:
    for cell in smoke.report["cells"]:
        if cell["flow"] in RUNS:
            assert cell["verdict"] == "passed", cell
            assert [s["stage"] for s in cell["stages"]] == [
                stage.value for stage in Stage if stage is not Stage.STRESS
            ]
            (output,) = cell["evidence"]["outputs"]
            assert output["shape"] == [1, 1000]
            assert output["witnesses"] == []
            assert 0 < output["rms_error"] <= output["limit_rms"] < 0.9


def test_what_lowers_only_is_a_declared_not_run_with_its_payload_opened(smoke: Ran) -> None:
    cells = {c["flow"]: c for c in smoke.report["cells"] if c["flow"] in LOWERS}
    for cell in cells.values():
        assert (cell["verdict"], cell["declared"], cell["cause"]) == ("not_run", True, "cannot_run")
        assert cell["stages"][-1]["stage"] == "serialize"
        assert cell["evidence"]["delegated_nodes"] > 100
        assert "not_run (declared)" in smoke.out
    for flow, dtype in (("coreml_fp32", "FLOAT32"), ("coreml_fp16", "FLOAT16")):
        (payload,) = cells[flow]["evidence"]["payload"]["payloads"]
        assert list(payload["float_operations"]) == [dtype]
        assert len(payload["inputs"]) == len(payload["outputs"]) == 1


def test_the_assets_of_core_ai_are_read_back(smoke: Ran) -> None:
    cells = {c["flow"]: c for c in smoke.report["cells"]}
    for flow in ("coreai_fp32", "coreai_fp16", "coreai_w8a8", "coreai_w8"):
        for asset in cells[flow]["evidence"]["payload"]["assets"]:
            assert len(asset["files"]) == 3
            assert min(asset["files"].values()) > 0
    for flow in ("coreai_w8a8", "coreai_w8"):
        assert cells[flow]["evidence"]["quantized_nodes"] > 50
        assert (
            cells[flow]["evidence"]["pte_bytes"] < cells["coreai_fp32"]["evidence"]["pte_bytes"] / 2
        )


def test_delegates_took_nearly_all_of_the_graph(smoke: Ran) -> None:
    for cell in smoke.report["cells"]:
        share = cell["evidence"]["delegated_nodes"] / cell["evidence"]["nodes"]
        if cell["flow"] == "portable_fp32":
            assert share == 0
        else:
            assert share > 0.7, cell["flow"]


def test_the_report_keeps_to_its_schema(smoke: Ran) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(smoke.report, SCHEMA)
    ledger = smoke.report["ledger"]
    assert ledger["asked"] == sum(ledger["verdicts"].values()) == len(smoke.report["cells"])


@pytest.mark.parametrize("key", ["gate", "ledger", "cells", "subjects"])
def test_the_schema_refuses_a_report_that_lacks_something(smoke: Ran, key: str) -> None:
    report = {name: value for name, value in smoke.report.items() if name != key}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)


def test_what_was_tested_is_recorded(smoke: Ran) -> None:
    subjects = {s["stack"]: s for s in smoke.report["subjects"]}
    assert set(subjects) == {"base", "openvino", "qnn", "coreai"}
    hashes = {s["contents"]["wheel_sha256"] for s in subjects.values()}
    assert len(hashes) == 1
    for subject in subjects.values():
        contents = subject["contents"]
        assert subject["managed"]
        assert contents["executorch"] == "1.5.1"
        assert contents["packages"]["torch"].startswith("2.13.0")
        assert "edgeproof" not in contents["packages"]
        assert contents["cpu_flags"]
        assert contents["changed_files"] == []
    assert subjects["qnn"]["contents"]["packages"]["onnxruntime-qnn"] == "2.5.0"
