"""A Python inside a subject that runs snippets for tests, since the host has no torch.

Nothing is installed into the subject: edgeproof's package is made importable there as the worker does it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from edgeproof.host.interpreters import described, find_python
from edgeproof.host.subjects import prepare
from edgeproof.host.wheel import parse_choice

_SERVER = """
import contextlib, io, json, os, sys, traceback
sys.path[:] = [p for p in sys.path if p]
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
exec(open(sys.argv[1]).read().replace('if __name__ == "__main__":', "if False:"), globals())
_make_importable(Path(sys.argv[1]).resolve().parent.parent)
for line in sys.stdin:
    names = {}
    try:
        exec(json.loads(line), names)
        answer = {"result": names.get("result")}
        text = json.dumps(answer)
    except BaseException:
        text = json.dumps({"error": traceback.format_exc()})
    out.write(text + "\\n")
    out.flush()
"""


class LabDied(Exception):
    """The interpreter ended in the middle of a snippet, or was gone before it."""

    def __init__(self, status: int, errors: str) -> None:
        super().__init__(f"the process ended with {status}; the end of its stderr:\n{errors}")


class Lab:
    """One interpreter in the subject of ``stack``; ``run`` returns what a snippet names ``result``."""

    def __init__(self, stack: str) -> None:
        choice = parse_choice(None)
        wanted = choice.stacks()[stack]
        python = described(find_python(None, wanted.pythons)).path
        self.subject = prepare(wanted, choice, python, on_progress=lambda _: None)
        import edgeproof

        main = Path(edgeproof.__file__).parent / "worker" / "__main__.py"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the lab
        self._process = subprocess.Popen(
            [self.subject.python, "-I", "-X", "faulthandler", "-c", _SERVER, str(main)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, code: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LabDied(self._process.wait(), self._last_errors())
        answer = json.loads(line)
        if "error" in answer:
            sys.stderr.write(answer["error"])
            raise AssertionError(answer["error"].strip().splitlines()[-1])
        return answer["result"]

    def _last_errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-8000:].decode(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._errors.close()
