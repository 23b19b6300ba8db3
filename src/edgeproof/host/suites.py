"""The cases of suites, listed inside a subject, and what listing needs that no subject holds."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from edgeproof.cases.suites import HARVESTED
from edgeproof.cases.upstream import PACKAGES
from edgeproof.errors import SubjectError
from edgeproof.host import cache, store
from edgeproof.host.process import Limits, WorkerDied, WorkerProcess
from edgeproof.host.uv import UvFailed, cannot_write, run_uv
from edgeproof.plan.case import Case
from edgeproof.plan.stack import Stack
from edgeproof.plan.subject import Subject


def packages_for(stack: Stack, subject: Subject, said: Callable[[str], None]) -> dict[str, str]:
    """The environment variable that names the folder of the packages which upstream's suites import.

    They are no part of the subject: what is proved is a clean install. Raises ``SubjectError``.
    """
    key = store.short_hash([list(stack.suites), subject.contents.python, subject.contents.machine])
    folder = cache.root() / "suites" / key
    try:
        if not folder.exists():
            said("suites: installing what upstream's test modules import, beside the subject")
            folder.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=folder.parent, prefix="."))
            try:
                run_uv(
                    ["pip", "install", "--quiet", "--no-deps", "--python", str(subject.python),
                     "--target", str(made / "packages"), *stack.suites]
                )  # fmt: skip
                (made / "packages").rename(folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    except UvFailed as failed:
        failure = failed.failure()
        raise SubjectError(f"suites: {failure.message}", mend=failure.mend) from failed
    except OSError as error:
        raise cannot_write(error) from error
    return {PACKAGES: str(folder)}


def needs_packages(suites: Sequence[str]) -> bool:
    """Whether any of the suites is made of upstream's test modules."""
    return any(suite in HARVESTED for suite in suites)


def cases_of(suites: Sequence[str], subject: Subject, folder: Path) -> list[Case]:
    """The cases of the suites as ``subject`` holds them. Raises ``SubjectError``."""
    worker = None
    try:
        worker = WorkerProcess(
            subject, folder, name="list", limits=Limits(), stop=threading.Event()
        )
        found = [case for suite in suites for case in worker.cases(suite)]
        worker.close()
    except WorkerDied as died:
        raise SubjectError(f"the suites cannot be listed: the worker died: {died}") from died
    finally:
        if worker is not None:
            worker.kill()
    counted = Counter(case.id for case in found)
    twice = [name for name, count in counted.items() if count > 1]
    if twice:
        raise SubjectError(f"the suites list {', '.join(twice[:3])} more than once")
    return found
