"""What users give by mistake, as they meet it: exit code, verdict, and the sentence they read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import WheelMaker
from tests.integration.conftest import HERE, MANY, Ran, run_command

BAD = HERE / "bad_models.py"
FINE = f"{HERE / 'deadly_models.py'}:fine"
SHAPE = "it must return (module, inputs), (module, inputs, dynamic_shapes), or a dict with"

AT_BUILD = {
    "raises": "FileNotFoundError: the weights are not there: weights.pt",
    "raises_keyboard_interrupt": "KeyboardInterrupt in raises_keyboard_interrupt (",
    "raises_what_cannot_be_printed": "Unprintable",
    "bare_assert": "assert NOT_CALLABLE == 4",
    "calls_exit": "the code called sys.exit(0)",
    "returns_none": f"bad_models.py:returns_none returned a NoneType; {SHAPE}",
    "returns_int": f"bad_models.py:returns_int returned a int; {SHAPE}",
    "returns_four": f"returned a tuple of 4; {SHAPE}",
    "returns_unknown_key": f"returned a dict with ['input']; {SHAPE}",
    "returns_no_module": f"gave a function as the module; {SHAPE}",
    "returns_class": f"gave a type as the module; {SHAPE}",
    "returns_wrong_inputs": f"gave inputs of type int; {SHAPE}",
    "needs_arguments": "missing 1 required positional argument: 'size'",
    "reads_stdin": "EOFError",
    "prints_and_raises": "ValueError: after all that",
}
LATER = {
    "inputs_do_not_fit": ("eager", "raised", "shapes cannot be multiplied (2x5 and 4x3)"),
    "data_dependent_branch": ("export", "raised", "Could not guard on data-dependent expression"),
    "no_tensor_output": ("serialize", "raised", "graph_output_allocated not set"),
    "faded": ("compare", "vacuous", "smaller than the rounding step of the input"),
    "ignores_its_input": ("compare", "vacuous", "the answer to another input would pass"),
    # sys.stderr is an object without write: the first library that warns fails.
    "replaces_streams": ("lower", "raised", "'object' object has no attribute 'write'"),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("bad")
    report = folder / "report.json"
    return run_command(
        str(MANY), str(report), "portable_fp32", "0", str(BAD), report=report, cwd=folder
    )


@pytest.mark.subject
@pytest.mark.parametrize("name", AT_BUILD)
def test_a_factory_that_gives_no_model(bad: Ran, name: str) -> None:
    cell = bad.cell(f"bad_models.{name}")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", "build", "raised")
    assert AT_BUILD[name] in cell["reason"]
    assert cell["reason"] in bad.out


@pytest.mark.subject
@pytest.mark.parametrize("name", LATER)
def test_a_model_that_does_not_come_through(bad: Ran, name: str) -> None:
    cell = bad.cell(f"bad_models.{name}")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", *LATER[name][:2])
    assert LATER[name][2] in cell["reason"]


@pytest.mark.subject
@pytest.mark.parametrize("name", ["faded", "ignores_its_input"])
def test_a_flow_that_only_lowers_here_is_held_to_the_same_witnesses(
    edgeproof: Callable[..., Ran], name: str
) -> None:
    ran = edgeproof("check", f"{BAD}:{name}", "--flows", "coreml_fp32", prove=True)
    cell = ran.cell(f"bad_models.{name}", "coreml_fp32")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", "export", "vacuous")
    assert LATER[name][2] in cell["reason"]
    assert ran.code == 3


@pytest.mark.subject
def test_what_a_model_prints_disturbs_nothing_and_is_shown_when_it_fails(bad: Ran) -> None:
    passed = bad.cell("bad_models.prints")
    assert (passed["verdict"], passed["log"]) == ("passed", "")
    failed = bad.cell("bad_models.prints_and_raises")
    for said in ("from Python", "to the descriptor", "to the other descriptor", "from C"):
        assert said in failed["log"].splitlines()
        assert f"  > {said}\n" in bad.out
    assert bad.out.count("from C\n") == 1
    assert "in prints_and_raises" in failed["log"]


@pytest.mark.subject
def test_no_bad_model_disturbs_the_others(bad: Ran) -> None:
    assert bad.code == 1
    assert bad.cell("bad_models.fine_after_all")["verdict"] == "passed"
    assert bad.report is not None
    assert bad.report["ledger"]["verdicts"]["crashed"] == 0
    assert set(AT_BUILD) | set(LATER) | {"prints", "fine_after_all"} == {
        cell["case"].removeprefix("user/bad_models.") for cell in bad.report["cells"]
    }


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "broken.py").write_text("def build(:\n")
    (tmp_path / "good.py").write_text("def build(): ...\nclass Net: ...\n")
    (tmp_path / "nothing.py").write_text("")
    (tmp_path / "binary.py").write_bytes(b"\x00\xff\xfe")
    (tmp_path / "saved.pt2").write_bytes(b"PK")
    return tmp_path


FLOW = ("--flows", "portable_fp32")
WRONG_USE = [
    (("check", "gone.py:build", *FLOW), "there is no file gone.py", "check the path"),
    (("check", "gone.pt2", *FLOW), "there is no file gone.pt2", "check the path"),
    (("check", "broken.py:build", *FLOW), "broken.py is not valid Python: invalid syntax", ""),
    (("check", "binary.py:build", *FLOW), "binary.py is not valid Python", ""),
    (("check", "good.py:biuld", *FLOW), "good.py defines no 'biuld'", "it defines build, Net"),
    (("check", "nothing.py:build", *FLOW), "defines no 'build'", "it defines no function"),
    (("check", "good.py:a b", *FLOW), "'a b' cannot be the name of a factory", ""),
    (("check", "good.py", *FLOW), "'good.py' is neither FILE.py:FACTORY nor MODEL.pt2", "build"),
    (("check", ".", *FLOW), "is neither FILE.py:FACTORY nor MODEL.pt2", "my_model.py:build"),
    (
        ("check", "saved.pt2", "--condition", *FLOW),
        "--condition cannot be used with saved.pt2",
        "leave --condition out",
    ),
    (("check", "good.py:build"), "Missing option '--flows'", ""),
    (
        ("check", "good.py:build", "--flows", "xnpack_fp32"),
        "there is no flow 'xnpack_fp32'",
        "did you mean xnnpack_fp32",
    ),
    (("check", "good.py:build", "--flows", ""), "there is no flow ''", "edgeproof flows"),
    (
        ("check", "good.py:build", "--flows", "portable_fp32,"),
        "there is no flow ''",
        "edgeproof flows",
    ),
    (("smoke", "--flows", ""), "there is no flow ''", "edgeproof flows"),
    (("smoke", "--flows", "tpu_*"), "there is no flow 'tpu_*'", ""),
    (("doctor", "--flows", "qnn_int4"), "there is no flow 'qnn_int4'", "qnn_fp16, qnn_8a8w?"),
    (
        ("check", "good.py:build", *FLOW, "--json", "no/such/folder/report.json"),
        "the report cannot be written to no/such/folder/report.json",
        "a folder that exists",
    ),
    (
        ("check", "good.py:build", *FLOW, "--json", "."),
        "the report cannot be written to .",
        "name a file",
    ),
    (
        ("check", "good.py:build", *FLOW, "--subject", "current", "--python", "3.12"),
        "--subject names an environment with its own executorch and Python",
        "leave --subject out",
    ),
    (
        ("doctor", "--subject", "current", "--executorch", "1.5.1"),
        "--subject names an environment with its own executorch and Python",
        "leave --subject out",
    ),
    (
        ("smoke", *FLOW, "--declare-not-run", "portable_fp32"),
        "--declare-not-run portable_fp32 gives no reason",
        "say why",
    ),
    (
        ("smoke", *FLOW, "--declare-not-run", "portable_fp32= "),
        "--declare-not-run portable_fp32 gives no reason",
        "say why",
    ),
    (
        ("smoke", *FLOW, "--declare-not-run", "qnn_fp15=no device"),
        "--declare-not-run names 'qnn_fp15', which is no flow",
        "did you mean qnn_fp16",
    ),
    (
        ("smoke", *FLOW, "--executorch", "newest"),
        "'newest' is neither a version of executorch nor a wheel file",
        "name a version such as",
    ),
    (
        ("smoke", *FLOW, "--executorch", "0.3.0"),
        "no stacks are known for executorch 0.3.0",
        "known versions: 1.5.1",
    ),
    (("smoke", *FLOW, "--executorch", "gone.whl"), "there is no file", "check the path"),
    (("smoke", *FLOW, "--workers", "0"), "Invalid value for '--workers'", ""),
    (("smoke", *FLOW, "--stage-timeout", "0"), "Invalid value for '--stage-timeout'", ""),
    (("smoke", *FLOW, "--stage-timeout", "nan"), "Invalid value for '--stage-timeout'", ""),
    (("subjects", "make", "vulkan"), "there is no stack 'vulkan'", "choose from base"),
    (("subjects", "path", "vulkan"), "there is no stack 'vulkan'", "choose one of: base"),
    (("subjects", "remove", "vulkan"), "there is no stack 'vulkan'", "choose one of: base"),
]


@pytest.mark.parametrize(("arguments", "said", "mend"), WRONG_USE)
def test_wrong_use_says_what_and_how_to_mend_it(
    files: Path, edgeproof: Callable[..., Ran], arguments: tuple[str, ...], said: str, mend: str
) -> None:
    ran = edgeproof(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert mend in ran.err
    assert ran.out == ""


def test_a_wheel_for_another_platform(
    edgeproof: Callable[..., Ran], own_cache: Path, make_wheel: WheelMaker
) -> None:
    wheel = make_wheel(tag="cp311-cp311-win_arm64")
    ran = edgeproof("smoke", *FLOW, "--executorch", str(wheel), prove=True)
    assert ran.code == 4
    cell = ran.cell("smoke/mobilenet_v3_small")
    assert (cell["verdict"], cell["cause"], cell["declared"]) == ("not_run", "no_subject", False)
    assert f"{wheel.name} is for win_arm64" in cell["reason"]
    assert "take the wheel that was built for this platform" in ran.out
    assert "gate: 1 subject(s) could not be prepared" in ran.out


def test_a_wheel_that_is_corrupt(
    edgeproof: Callable[..., Ran], own_cache: Path, make_wheel: WheelMaker
) -> None:
    wheel = make_wheel()
    wheel.write_bytes(wheel.read_bytes()[:-40])
    ran = edgeproof("smoke", *FLOW, "--executorch", str(wheel))
    assert ran.code == 4
    assert f"{wheel.name}" in ran.err
    assert "mend: " in ran.err


def test_a_registry_that_cannot_be_asked(edgeproof: Callable[..., Ran], own_cache: Path) -> None:
    """Offline: that uv asks in vain is enough, and what becomes of it is the same."""
    arguments = ("smoke", "--flows", "portable_fp32,qnn_fp16", "--stage-timeout", "99.5")
    env = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(own_cache / "uv")}
    ran = edgeproof(*arguments, prove=True, env=env)
    assert ran.code == 4
    assert ran.report is not None
    assert [cell["verdict"] for cell in ran.report["cells"]] == ["not_run", "not_run"]
    assert [subject["id"] for subject in ran.report["broken_subjects"]] == [
        cell["subject"] for cell in ran.report["cells"]
    ]
    assert ran.report["cells"][0]["reproduce"].endswith(
        "--flows portable_fp32 --stage-timeout 99.5"
    )
    assert "gate: 2 subject(s) could not be prepared" in ran.out
    assert "no cell passed: nothing was proved" in ran.out


def test_a_subject_that_was_not_made_yet(edgeproof: Callable[..., Ran], own_cache: Path) -> None:
    ran = edgeproof("subjects", "path", "qnn")
    assert ran.code == 4
    assert "no subject of stack qnn with executorch 1.5.1 on Python 3." in ran.err
    assert "mend: edgeproof subjects make qnn" in ran.err
    assert "mend: edgeproof subjects make qnn" in ran.err
    ran = edgeproof("subjects", "remove", "qnn")
    assert (ran.code, ran.out) == (0, "there is no subject of qnn\n")
