"""The workflows: what they may do, and that what they say on Linux works as it is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from edgeproof.flows.registry import all_flows
from edgeproof.plan.flow import EVERYWHERE
from edgeproof.plan.stack import known_releases, stacks_for
from tests.actions import (
    ROOT,
    WORKFLOWS,
    Expression,
    Runner,
    UnknownError,
    combinations,
    fill,
    load,
)
from tests.conftest import WheelMaker

JUST_WORKS = ROOT / ".github" / "workflows" / "just-works.yml"
CI = ROOT / ".github" / "workflows" / "ci.yml"
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
NO_INPUTS: dict[str, Any] = {"inputs": {}, "github": {}}
INSIDE = "INSIDE_A_TEST_OF_THE_WORKFLOWS"

linux = pytest.mark.skipif(sys.platform != "linux", reason="runs the Linux jobs")


@pytest.fixture(autouse=True)
def _no_recursion() -> None:
    if INSIDE in os.environ:
        pytest.fail("a workflow under test runs the tests of the workflows: narrow it with ARGS")


@pytest.fixture
def make_runner(tmp_path: Path) -> Callable[..., Runner]:
    def make(*, narrowed: dict[str, str | None] | None = None, **fields: Any) -> Runner:
        return Runner(
            home=tmp_path / "runner", narrowed={INSIDE: "1", **(narrowed or {})}, **fields
        )

    return make


def _steps() -> Iterator[Any]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            for number, step in enumerate(job["steps"]):
                yield pytest.param(step, id=f"{path.stem}-{name}-{number}")


def _jobs() -> Iterator[Any]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield pytest.param(job, id=f"{path.stem}-{name}")


# What they may do


def test_there_are_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "just-works.yml"]


def test_just_works_starts_when_it_should() -> None:
    workflow = load(JUST_WORKS)
    on = workflow["on"]

    assert workflow["name"] == "Just works"
    assert set(on) == {"pull_request", "push", "schedule", "workflow_dispatch", "workflow_call"}
    assert on["push"] == {"branches": ["main"]}
    assert on["pull_request"] is None, "no path is left out"
    assert re.fullmatch(r"\d+ \d+ \* \* \*", on["schedule"][0]["cron"])
    assert "executorch" in on["workflow_dispatch"]["inputs"]
    assert {"artifact", "executorch"} <= set(on["workflow_call"]["inputs"])


def test_every_platform_and_python_is_proved() -> None:
    found = {
        (entry["platform"], entry["python"])
        for entry in combinations(load(JUST_WORKS)["jobs"]["prove"], NO_INPUTS)
    }
    pythons = stacks_for(known_releases()[0])["base"].pythons

    assert found == {(platform, python) for platform in EVERYWHERE for python in pythons}


@pytest.mark.parametrize("platform", EVERYWHERE)
def test_every_platform_has_a_runner(platform: str) -> None:
    job = load(JUST_WORKS)["jobs"]["prove"]
    runner = fill(job["runs-on"], {"matrix": {"platform": platform}})
    system = {"linux": "ubuntu", "darwin": "macos", "windows": "windows"}

    assert runner.startswith(system[platform.split("-")[0]])
    assert runner.endswith("-arm") is (platform == "linux-aarch64")


@pytest.mark.parametrize("platform", EVERYWHERE)
def test_what_a_platform_cannot_carry_is_declared_and_nothing_else(platform: str) -> None:
    lines = (ROOT / ".github" / "not-run" / f"{platform}.txt").read_text().splitlines()
    declared = dict(line.split("=", 1) for line in lines)
    stacks = stacks_for(known_releases()[0])
    cannot = {
        flow.name
        for flow in all_flows().values()
        if flow.in_smoke
        and (not flow.lowers_here(platform) or platform not in stacks[flow.stack].platforms)
    }

    assert len(declared) == len(lines)
    assert set(declared) == cannot
    assert all(len(reason.split()) > 3 for reason in declared.values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_permissions_are_read_only(path: Path) -> None:
    workflow = load(path)

    assert workflow["permissions"] == {"contents": "read"}
    assert not [name for name, job in workflow["jobs"].items() if "permissions" in job]
    assert "secrets" not in path.read_text()
    assert "pull_request_target" not in workflow["on"]


@pytest.mark.parametrize("job", list(_jobs()))
def test_no_job_can_hang(job: dict[str, Any]) -> None:
    assert 0 < job["timeout-minutes"] <= 100
    assert "continue-on-error" not in job


@pytest.mark.parametrize("step", list(_steps()))
def test_no_step_can_hang_or_fail_unseen(step: dict[str, Any]) -> None:
    assert 0 < step["timeout-minutes"] <= 90
    assert "continue-on-error" not in step
    assert not re.search(r"\|\|\s*(true|:|exit 0)|set \+e", step.get("run", ""))


@pytest.mark.parametrize("step", list(_steps()))
def test_no_step_publishes(step: dict[str, Any]) -> None:
    text = json.dumps(step).lower()

    assert not re.search(r"twine|publish|gh release|create-release|git push|docker push", text)
    if "upload" in text:
        assert step["uses"].startswith("actions/upload-artifact@")
        assert step["with"]["path"] in ("report.json", "dist/")


def test_just_works_uploads_nothing_but_the_report() -> None:
    uploads = [
        step
        for job in load(JUST_WORKS)["jobs"].values()
        for step in job["steps"]
        if "upload" in step.get("uses", "")
    ]

    assert [step["with"]["path"] for step in uploads] == ["report.json"]
    assert uploads[0]["if"] == "always()"
    assert "whl" not in json.dumps(uploads)


@pytest.mark.parametrize("step", list(_steps()))
def test_actions_are_the_runners_own_at_a_major_version(step: dict[str, Any]) -> None:
    if "uses" in step:
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])


@pytest.mark.parametrize("step", list(_steps()))
def test_nothing_of_the_caller_is_pasted_into_a_script(step: dict[str, Any]) -> None:
    """An input would be run as code; by way of ``env`` it is data."""
    assert "${{" not in step.get("run", "")


# The linter sees what is wrong


FAULTS = {
    "a misspelt key": ("timeout-minutes: 5\n    s", "timeout-minuts: 5\n    s", "minuts"),
    "a job that is not there": ("needs: prove", "needs: proof", "proof"),
    "an unknown context": ("${{ matrix.python }}", "${{ matrx.python }}", "matrx"),
    "an unfinished expression": ("inputs.artifact != ''", "inputs.artifact !=", "unexpected"),
    "an unknown input": ("inputs.artifact != ''", "inputs.artefact != ''", "artefact"),
    "an unquoted variable": ('test "$RESULT" = success', "test $RESULT = success", "SC2086"),
    "an unfinished script": ('test "$RESULT" = success', 'if test "$RESULT"; then', "SC1"),
}  # fmt: skip


def _lint(workflows: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", "workflows", f"WORKFLOWS={workflows}"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@linux
def test_the_linter_passes_the_workflows_as_they_are(tmp_path: Path) -> None:
    done = _lint(shutil.copy(JUST_WORKS, tmp_path / "just-works.yml"))

    assert done.returncode == 0, done.stdout + done.stderr


@linux
@pytest.mark.parametrize("fault", FAULTS)
def test_the_linter_catches(fault: str, tmp_path: Path) -> None:
    right, wrong, said = FAULTS[fault]
    text = JUST_WORKS.read_text()
    assert right in text, "the fault would not be seeded"
    seeded = tmp_path / "just-works.yml"
    seeded.write_text(text.replace(right, wrong))

    done = _lint(str(seeded))

    assert done.returncode != 0
    assert said in done.stdout


@linux
def test_linting_no_workflow_is_an_error() -> None:
    done = _lint("")

    assert done.returncode != 0
    assert "no workflows" in done.stderr


# The stand-in for the runner


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a' || 'b'", "a"),
        ("'' || 'b'", "b"),
        ("'x' == 'x' && 'it''s' || 'c'", "it's"),
        ("inputs.nothing == ''", True),
        ("inputs.some != ''", True),
        ("!inputs.some", False),
        ('fromJSON(\'["a", "b"]\')', ["a", "b"]),
        ('fromJSON(\'{"a": "b"}\')[inputs.some]', "b"),
        ("(inputs.nothing || 1)", 1),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert Expression(text, {"inputs": {"some": "a"}}).value == value


@pytest.mark.parametrize(
    "text", ["secrets.token", "hashFiles('x')", "inputs.a +", "inputs.a b", "a.b", "'a", "inputs."]
)
def test_an_unknown_expression_is_an_error(text: str) -> None:
    with pytest.raises(UnknownError):
        Expression(text, {"inputs": {}})


@linux
@pytest.mark.parametrize(
    "step",
    [
        {"uses": "someone/action@v1"},
        {"run": "true", "timeout-minutes": 1, "shell": "pwsh"},
        {"run": "true", "timeout-minutes": 1, "env": {"A": "${{ vars.A }}"}},
        {"run": "true", "timeout-minutes": 1, "if": "${{ cancelled() }}"},
    ],
)
def test_an_unknown_step_is_an_error(
    step: dict[str, Any], make_runner: Callable[..., Runner]
) -> None:
    with pytest.raises(UnknownError):
        make_runner().run({"steps": [step]}, {})


@linux
def test_steps_talk_to_each_other_and_end_at_the_first_failure(
    make_runner: Callable[..., Runner],
) -> None:
    runner = make_runner()
    scripts = [
        'echo "A=1" >> "$GITHUB_ENV"',
        'test "$A" = 1; false | true',
        "echo never",
    ]
    steps: list[dict[str, Any]] = [{"run": script, "timeout-minutes": 1} for script in scripts]
    steps.append({"run": "echo still", "timeout-minutes": 1, "if": "always()"})

    assert runner.run({"steps": steps}, {}) is False
    assert runner.ran == [scripts[0], scripts[1], "echo still"]


# Every script of the Linux jobs, run


def _shared_caches() -> dict[str, str | None]:
    """The machine's own caches in place of the runner's empty ones: gigabytes each time."""
    uv = subprocess.run([find_uv_bin(), "cache", "dir"], capture_output=True, text=True, check=True)
    return {
        "UV_CACHE_DIR": uv.stdout.strip(),
        "EDGEPROOF_CACHE_DIR": os.environ.get("EDGEPROOF_CACHE_DIR"),
    }


def _prove(runner: Runner) -> bool:
    job = load(JUST_WORKS)["jobs"]["prove"]
    wanted = {"platform": "linux-x86_64", "python": HERE}
    assert wanted in list(combinations(job, {"inputs": runner.inputs}))
    return runner.run(job, wanted)


def _scripts(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def _assert_proved(runner: Runner) -> dict[str, Any]:
    assert runner.ran == _scripts(load(JUST_WORKS)["jobs"]["prove"])
    assert {name: [f.name for f in files] for name, files in runner.uploaded.items()} == {
        f"just-works-linux-x86_64-{HERE}": ["report.json"]
    }
    assert "portable_fp32" in runner.summary
    report = (runner.workspace / "report.json").read_text()
    assert "portable_fp32" in report
    return dict(json.loads(report))


@linux
@pytest.mark.subject
@pytest.mark.parametrize("version", ["", known_releases()[0]])
def test_just_works_with_a_released_version(
    version: str, make_runner: Callable[..., Runner]
) -> None:
    runner = make_runner(
        inputs={"executorch": version, "flows": "portable_fp32"}, narrowed=_shared_caches()
    )

    assert _prove(runner), runner.output
    _assert_proved(runner)
    assert known_releases()[0] in (runner.workspace / "report.json").read_text()


@linux
@pytest.mark.subject
def test_just_works_with_the_wheel_a_build_hands_over(
    tmp_path: Path, make_runner: Callable[..., Runner], make_wheel: WheelMaker
) -> None:
    version = known_releases()[0]
    built = tmp_path / "built"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
         "--dest", str(built), f"executorch=={version}"],
        check=True,
    )  # fmt: skip
    (wheel,) = built.glob("*.whl")
    other = make_wheel(version=version, tag="cp312-cp312-win_amd64", folder=tmp_path / "other")
    runner = make_runner(
        inputs={"artifact": "wheels-*", "executorch": "", "flows": "portable_fp32"},
        artifacts={
            "wheels-linux": built,
            "wheels-windows": other.parent,
            "logs": tmp_path,
        },
        narrowed=_shared_caches(),
    )

    assert _prove(runner), runner.output
    _assert_proved(runner)
    assert runner.exported["EXECUTORCH"] == f"wheels/{wheel.name}"


@linux
@pytest.mark.parametrize("tag", [None, "cp311-cp311-win_amd64"])
def test_just_works_is_red_when_the_build_hands_over_no_wheel_for_the_platform(
    tag: str | None, tmp_path: Path, make_runner: Callable[..., Runner], make_wheel: WheelMaker
) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    if tag:
        make_wheel(tag=tag, folder=folder)
    runner = make_runner(inputs={"artifact": "wheels"}, artifacts={"wheels": folder})

    assert _prove(runner) is False
    assert "no wheels of executorch fit" in runner.output
    assert not [script for script in runner.ran if "edgeproof smoke" in script]
    assert runner.uploaded == {f"just-works-linux-x86_64-{HERE}": []}


STUB = """#!/bin/sh
for argument; do printf '%s\\n' "$argument"; done > said.txt
exit "$CODE"
"""


@linux
@pytest.mark.parametrize("code", [0, 1, 3])
@pytest.mark.parametrize("platform", EVERYWHERE)
def test_what_a_platform_is_asked_to_prove(
    platform: str, code: int, make_runner: Callable[..., Runner]
) -> None:
    """The command line of every platform, as a stand-in for edgeproof sees it."""
    job = load(JUST_WORKS)["jobs"]["prove"]
    (step,) = (step for step in job["steps"] if "edgeproof smoke" in step.get("run", ""))
    runner = make_runner(narrowed={"CODE": str(code)})
    shutil.copytree(ROOT / ".github", runner.workspace / ".github")
    (runner.home / "bin").mkdir()
    (runner.home / "bin" / "edgeproof").write_text(STUB)
    (runner.home / "bin" / "edgeproof").chmod(0o755)
    runner.path = [str(runner.home / "bin")]
    runner.exported = {"EXECUTORCH": "wheels/a b.whl"}

    assert runner.run({"steps": [step]}, {"platform": platform, "python": "3.12"}) is (code == 0)

    declared = (ROOT / ".github" / "not-run" / f"{platform}.txt").read_text().splitlines()
    assert (runner.workspace / "said.txt").read_text().splitlines() == [
        *("smoke", "--python", "3.12", "--json", "report.json"),
        *("--executorch", "wheels/a b.whl"),
        *(word for line in declared for word in ("--declare-not-run", line)),
    ]


@linux
@pytest.mark.parametrize("result", ["success", "failure", "cancelled", "skipped"])
def test_only_success_everywhere_is_success(
    result: str, make_runner: Callable[..., Runner]
) -> None:
    job = load(JUST_WORKS)["jobs"]["just-works"]

    assert job["if"] == "always()"
    assert make_runner(needs={"prove": result}).run(job, {}) is (result == "success")


@linux
@pytest.mark.parametrize("name", load(CI)["jobs"])
def test_ci(name: str, make_runner: Callable[..., Runner]) -> None:
    """Our own CI; its tests are narrowed to one quick file, its commands are not."""
    job = load(CI)["jobs"][name]
    entries = list(combinations(job, NO_INPUTS))
    entry = next((e for e in entries if e.get("python") == HERE), entries[0])
    runner = make_runner(narrowed={**_shared_caches(), "ARGS": "tests/host/test_templates.py"})

    assert runner.run(job, entry), runner.output
    assert runner.ran == _scripts(job)
    if name == "wheel":
        assert [file.suffix for file in runner.uploaded["edgeproof"]] == [".whl", ".gz"]
    else:
        assert re.search(r"\d+ passed", runner.output)


@linux
def test_the_check_of_a_clean_clone(tmp_path: Path, make_runner: Callable[..., Runner]) -> None:
    """``.ci/run``, narrowed like the jobs above: it ends as pytest does, and leaves nothing."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    runner = make_runner(narrowed={"TMPDIR": str(scratch), "ARGS": "tests/host/test_templates.py"})
    steps = [
        {"uses": "actions/checkout@v6", "with": {"persist-credentials": False}},
        {"run": "bash .ci/run", "timeout-minutes": 10},
    ]

    assert runner.run({"steps": steps}, {}), runner.output
    assert re.search(r"=+ \d+ passed.*\n.exit code 0.\n$", runner.output)
    assert not list(scratch.glob("tmp.*"))
