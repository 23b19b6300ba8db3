"""Ctrl-C while a subject is being made: uv is ended with the run, and the subject is not called broken."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeproof.errors import SubjectError
from edgeproof.host import uv
from edgeproof.host.process import Limits
from edgeproof.host.run import SubjectPlan, run_cells
from edgeproof.plan.stack import stacks_for
from edgeproof.plan.stage import Verdict
from edgeproof.plan.subject import Subject
from tests.faults.test_lying_worker import Silent, cell_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

BASE = stacks_for("1.5.1")["base"]


def test_uv_is_ended(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    slow = tmp_path / "uv"
    slow.write_text(f'#!/bin/sh\necho $$ > "{noted}"\nexec sleep 60\n')
    slow.chmod(0o755)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(slow))

    def prepare(said: Callable[[str], None]) -> Subject:
        try:
            uv.run_uv(["pip", "sync"])
        except uv.UvFailed as failed:
            raise SubjectError("uv failed") from failed
        raise AssertionError("uv came to an end")

    def press() -> None:
        while not (noted.exists() and noted.read_text().strip()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    cell = cell_of()
    threading.Thread(target=press, daemon=True).start()
    began = time.monotonic()
    outcome = run_cells(
        [((cell,),)],
        [SubjectPlan(stack=BASE, id=cell.subject, prepare=prepare)],
        workers=2,
        watcher=Silent(),
        limits=Limits(),
        declared={cell.flow.name: "it may be missing, but not for Ctrl-C"},
    )
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
    assert outcome.interrupted
    assert outcome.broken == {}
    (result,) = outcome.ledger
    assert (result.verdict, result.cause, result.declared) == (
        Verdict.NOT_RUN,
        "interrupted",
        False,
    )
