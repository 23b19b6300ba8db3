"""Just enough of GitHub Actions to run the jobs of a workflow here, as they are written.

Scripts run in bash as the runner runs them, with the files through which steps talk to each other.
What a job `uses` is replaced by what it does to the machine. Whatever is unknown is an error:
a step that was left out would be a test that proves nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))


class UnknownError(Exception):
    """The workflow uses something this file does not know."""


def load(path: Path) -> dict[str, Any]:
    """A workflow; its key ``on`` is what YAML 1.1 reads as a boolean."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    workflow["on"] = workflow.pop(True)
    return workflow


_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>\d+)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>\|\||&&|==|!=|[!()\[\].,]))"
)


class Expression:
    """The language inside ``${{ }}``: https://docs.github.com/actions, "Expressions"."""

    def __init__(self, text: str, contexts: Mapping[str, Any], *, failed: bool = False) -> None:
        self.contexts = contexts
        self.failed = failed
        self.asks_status = False
        self.tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise UnknownError(f"{text[at:]!r} in the expression {text!r}")
            self.tokens.append(match[0].strip())
            at = match.end()
        self.tokens.append("")
        self.value = self._or()
        if self.tokens[0]:
            raise UnknownError(f"{self.tokens[0]!r} in the expression {text!r}")

    def _take(self, *wanted: str) -> str:
        if wanted and self.tokens[0] not in wanted:
            raise UnknownError(f"{self.tokens[0]!r} where {wanted} was expected")
        return self.tokens.pop(0)

    def _or(self) -> Any:
        value = self._and()
        while self.tokens[0] == "||":
            self._take()
            other = self._and()
            value = value or other
        return value

    def _and(self) -> Any:
        value = self._equal()
        while self.tokens[0] == "&&":
            self._take()
            other = self._equal()
            value = value and other
        return value

    def _equal(self) -> Any:
        value = self._unary()
        while self.tokens[0] in ("==", "!="):
            sign = self._take()
            other = self._unary()
            # What is missing is null, and null equals the empty string.
            value = ((value or "") == (other or "")) is (sign == "==")
        return value

    def _unary(self) -> Any:
        if self.tokens[0] == "!":
            self._take()
            return not self._unary()
        value = self._primary()
        while self.tokens[0] in (".", "["):
            if self._take() == ".":
                key = self._take()
                if not key.isidentifier():
                    raise UnknownError(f"the name {key!r}")
            else:
                key = self._or()
                self._take("]")
            if not isinstance(value, Mapping):
                raise UnknownError(f"{key!r} of {value!r}")
            value = value.get(key, "")
        return value

    def _primary(self) -> Any:
        token = self._take()
        if token == "(":
            value = self._or()
            self._take(")")
            return value
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if token.isdigit():
            return int(token)
        if self.tokens[0] == "(":
            return self._call(token)
        if token in self.contexts:
            return self.contexts[token]
        raise UnknownError(f"the context or value {token!r}")

    def _call(self, name: str) -> Any:
        self._take("(")
        arguments = []
        while self.tokens[0] != ")":
            arguments.append(self._or())
            if self.tokens[0] == ",":
                self._take()
        self._take(")")
        if name in ("always", "failure", "success") and not arguments:
            self.asks_status = True
            return {"always": True, "failure": self.failed, "success": not self.failed}[name]
        if name == "fromJSON":
            return json.loads(*arguments)
        if name == "toJSON":
            return json.dumps(*arguments)
        raise UnknownError(f"the function {name}()")


def fill(text: Any, contexts: Mapping[str, Any]) -> Any:
    """``text`` with its expressions replaced; one that is the whole text keeps its type."""
    if not isinstance(text, str):
        return text
    whole = re.fullmatch(r"\s*\$\{\{((?:(?!\}\}).)*)\}\}\s*", text)
    if whole:
        return Expression(whole[1], contexts).value
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(Expression(match[1], contexts).value), text)


def combinations(job: Mapping[str, Any], contexts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of a job's matrix; one empty entry for a job without."""
    strategy = job.get("strategy", {})
    unknown = set(strategy) - {"matrix", "fail-fast"} | (
        set(strategy.get("matrix", {})) & {"include", "exclude"}
    )
    if unknown:
        raise UnknownError(f"strategy: {unknown}")
    axes = {name: fill(values, contexts) for name, values in strategy.get("matrix", {}).items()}
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _without_none(env: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in env.items() if value is not None}


@dataclass
class Runner:
    """A fresh machine that runs one job in a copy of the repository."""

    home: Path
    inputs: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, Path] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    event: str = "workflow_dispatch"
    # What the test adds to narrow the work: the command lines stay those of the workflow.
    narrowed: Mapping[str, str | None] = field(default_factory=dict)
    uploaded: dict[str, list[Path]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    output: str = ""

    def __post_init__(self) -> None:
        self.workspace = self.home / "work"
        self.temp = self.home / "temp"
        self.temp.mkdir(parents=True)
        self.workspace.mkdir()
        self.path: list[str] = []
        self.exported: dict[str, str] = {}
        self.summary = ""

    def run(self, job: Mapping[str, Any], matrix: Mapping[str, Any]) -> bool:
        """Run the job's steps in their order; whether all of them succeeded."""
        known = {"name", "strategy", "runs-on", "timeout-minutes", "defaults", "env", "steps"}
        unknown = set(job) - known - {"needs", "if"}
        if unknown or job.get("defaults", {"run": {"shell": "bash"}}) != {"run": {"shell": "bash"}}:
            raise UnknownError(f"in the job: {unknown or job['defaults']}")
        contexts: dict[str, Any] = {
            "matrix": matrix,
            "inputs": self.inputs,
            "github": {
                "workspace": str(self.workspace),
                "event_name": self.event,
                "ref": "refs/heads/main",
                "repository": "us/edgeproof",
                "sha": "0" * 40,
                "run_id": "1",
            },
            "runner": {"temp": str(self.temp), "os": "Linux"},
            "job": {"workflow_repository": "us/edgeproof", "workflow_sha": "0" * 40},
            "needs": {name: {"result": result} for name, result in self.needs.items()},
        }
        failed = False
        for step in job["steps"]:
            condition = Expression(
                str(step.get("if", "success()")).removeprefix("${{").removesuffix("}}"),
                contexts,
                failed=failed,
            )
            if not condition.value or (failed and not condition.asks_status):
                continue
            env = {}
            for part in (job, step):
                for name, value in part.get("env", {}).items():
                    env[name] = str(fill(value, contexts))
            failed = not self._step(step, env, contexts) or failed
        return not failed

    def _step(
        self, step: Mapping[str, Any], env: Mapping[str, str], contexts: Mapping[str, Any]
    ) -> bool:
        unknown = set(step) - {"name", "if", "uses", "with", "run", "env", "timeout-minutes"}
        if unknown:
            raise UnknownError(f"in the step {step}: {unknown}")
        if "run" in step:
            self.ran.append(step["run"])
            return self._script(fill(step["run"], contexts), env, step["timeout-minutes"])
        given = {name: fill(value, contexts) for name, value in step.get("with", {}).items()}
        action, _, _ = step["uses"].partition("@")
        actions: dict[str, Callable[..., bool]] = {
            "actions/checkout": self._checkout,
            "actions/setup-python": self._setup_python,
            "actions/download-artifact": self._download,
            "actions/upload-artifact": self._upload,
        }
        if action not in actions:
            raise UnknownError(f"the action {action}")
        return actions[action](**{name.replace("-", "_"): value for name, value in given.items()})

    def _checkout(
        self,
        *,
        persist_credentials: bool,
        repository: str = "us/edgeproof",
        ref: str = "",
    ) -> bool:
        assert persist_credentials is False, "the token must not stay in the checkout"
        assert repository == "us/edgeproof", "edgeproof's own repository is what has the scripts"
        del ref
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.split("\0")  # fmt: skip
        for name in names:
            if name and (ROOT / name).is_file():
                (self.workspace / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.workspace / name)
        for command in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", *command], cwd=self.workspace, check=True)
        return True

    def _setup_python(self, *, python_version: str) -> bool:
        """A Python without packages, as the runner's is.

        It is the one the tests run with, whichever is asked for: the machine need not have others.
        """
        assert re.fullmatch(r"3\.\d+", python_version)
        place = self.home / f"python-{python_version}"
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        self.path.insert(0, str(place / "bin"))
        return True

    def _download(self, *, pattern: str, path: str, merge_multiple: bool) -> bool:
        assert merge_multiple is True
        (self.workspace / path).mkdir(parents=True, exist_ok=True)
        for name, folder in self.artifacts.items():
            if fnmatchcase(name, pattern):
                shutil.copytree(folder, self.workspace / path, dirs_exist_ok=True)
        return True

    def _upload(self, *, name: str, path: str, if_no_files_found: str) -> bool:
        assert if_no_files_found == "error", "an artifact without files would go unnoticed"
        assert not re.search(r'[":<>|*?\\/\r\n]', name), f"no name for an artifact: {name}"
        assert name not in self.uploaded, f"uploaded twice: {name}"
        place = self.workspace / path
        files = [place] if place.is_file() else sorted(f for f in place.rglob("*") if f.is_file())
        files = [file for file in files if not file.name.startswith(".")]  # as the action does
        self.uploaded[name] = files
        return bool(files)

    def _script(self, script: str, env: Mapping[str, str], minutes: float) -> bool:
        talk = {
            name: self.temp / name
            for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
        }
        for file in talk.values():
            file.write_text("")
        # The coverage, colours and settings of the surrounding pytest are not the runner's.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("PYTEST", "EDGEPROOF", "GITHUB", "MAKE", "VIRTUAL_ENV", "MFLAGS")
            )
        }
        (self.temp / "script.sh").write_text(script)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(self.temp / "script.sh")],
            cwd=self.workspace,
            env=_without_none(
                {
                    **inherited,
                    "CI": "true",
                    "GITHUB_ACTIONS": "true",
                    "GITHUB_WORKSPACE": str(self.workspace),
                    "RUNNER_TEMP": str(self.temp),
                    **{name: str(file) for name, file in talk.items()},
                    **self.exported,
                    **env,
                    **self.narrowed,
                    "PATH": os.pathsep.join([*self.path, os.environ["PATH"]]),
                }
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=minutes * 60,
            check=False,
        )
        self.output += f"$ {script}\n{done.stdout}(exit code {done.returncode})\n"
        for line in talk["GITHUB_ENV"].read_text().splitlines():
            name, equals, value = line.partition("=")
            if not equals:
                raise UnknownError(f"in GITHUB_ENV: {line!r}")
            self.exported[name] = value
        self.path[:0] = talk["GITHUB_PATH"].read_text().split()
        if talk["GITHUB_OUTPUT"].read_text():
            raise UnknownError("an output of a step")
        self.summary += talk["GITHUB_STEP_SUMMARY"].read_text()
        return done.returncode == 0
