"""Runs the uv that edgeproof depends on, and says what its failures mean to the user."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from uv import find_uv_bin

from edgeproof.errors import SubjectError
from edgeproof.host import cache

# What the user set about registries, credentials, the network and uv's cache holds here too; these
# would change *what* is installed, or where, and a subject is what its stack names.
_DROPPED = frozenset(
    {
        "UV_BREAK_SYSTEM_PACKAGES", "UV_BUILD_CONSTRAINT", "UV_COMPILE_BYTECODE", "UV_CONSTRAINT",
        "UV_EXCLUDE", "UV_FROZEN", "UV_ISOLATED", "UV_LOCKED", "UV_MANAGED_PYTHON", "UV_NO_BINARY",
        "UV_NO_BINARY_PACKAGE", "UV_NO_BUILD", "UV_NO_BUILD_PACKAGE", "UV_NO_MANAGED_PYTHON",
        "UV_NO_SYNC", "UV_NO_VERIFY_HASHES", "UV_OVERRIDE", "UV_PRERELEASE", "UV_PROJECT",
        "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "UV_REQUIRE_HASHES", "UV_RESOLUTION",
        "UV_SYSTEM_PYTHON", "UV_TORCH_BACKEND", "UV_VENV_CLEAR", "UV_VENV_RELOCATABLE",
        "UV_VENV_SEED", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY",
        "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH",
    }
)  # fmt: skip
_FOLDERS = ("UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_FIND_LINKS", "SSL_CERT_FILE", "SSL_CERT_DIR")


class UvFailed(Exception):
    """uv ended with an error; ``lines`` is what it said."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)

    def failure(self) -> SubjectError:
        """The same as an error with cause and mend."""
        return explain("\n".join(self.lines))

    def cause(self) -> str:
        """The same in a few words."""
        text = str(self).lower()
        return _reason(text) if "error sending request" in text else _detail(str(self))


def environment(present: Mapping[str, str]) -> dict[str, str]:
    """The environment uv is run with: the user's, without what would change a subject.

    uv is started in the root folder, so that no project of the user around it takes part; relative
    paths in its settings are therefore made absolute.
    """
    kept = {name: value for name, value in present.items() if name not in _DROPPED}
    for name in _FOLDERS:
        value = kept.get(name)
        if value and "://" not in value and (name == "UV_CACHE_DIR" or Path(value).exists()):
            kept[name] = str(Path(value).absolute())
    kept["NO_COLOR"] = "1"
    kept["UV_NO_PROGRESS"] = "1"
    return kept


_running: set[subprocess.Popen[str]] = set()


def end_running_uv() -> None:
    """End every uv there is: those who wait for one in other threads get ``UvFailed``."""
    for process in list(_running):
        process.terminate()


def run_uv(arguments: Sequence[str], *, on_line: Callable[[str], None] | None = None) -> list[str]:
    """Run uv to its end and return the lines it printed; ``on_line`` sees each as it comes.

    Raises ``UvFailed``. However this is left, Ctrl-C included, no uv is left running.
    """
    process = subprocess.Popen(
        [find_uv_bin(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        cwd=Path.cwd().anchor,
        env=environment(os.environ),
    )
    lines: list[str] = []
    _running.add(process)
    try:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if on_line is not None:
                    on_line(lines[-1])
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        _running.discard(process)
    if code != 0:
        raise UvFailed(lines)
    return lines


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    deadline = time.monotonic() + 5
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.02)


def explain(output: str) -> SubjectError:
    """Turn what uv said into cause and mend. The kinds were each provoked with a real uv."""
    text = output.lower()
    detail = _detail(output)
    if "no space left on device" in text or "os error 28" in text or "os error 112" in text:
        return disk_full(detail)
    if re.search(r"os error (122|27)\b|quota exceeded|file too large", text):
        return disk_full(detail)
    if "hash mismatch" in text:
        return SubjectError(
            f"a downloaded package is not the one that was resolved (its hash differs): {detail}",
            mend="clear it from uv's cache (uv cache clean PACKAGE) and try again; if it stays, "
            "the registry or a proxy on the way serves altered files",
        )
    if "network was disabled" in text or "network connectivity is disabled" in text:
        return SubjectError(
            "packages are missing from uv's cache, and uv is set to work offline",
            mend="unset UV_OFFLINE, or make the subject once with the network",
        )
    if re.search(
        r"client error \(connect\)|dns error|error sending request|timed? ?out|"
        r"connection (refused|reset)|network is unreachable|certificate|response body",
        text,
    ):
        return SubjectError(
            f"the package registry cannot be reached ({_reason(text)})",
            mend="check the network, HTTPS_PROXY, and UV_DEFAULT_INDEX if you use a registry of "
            "your own; a subject that was made once is used again without any network",
        )
    if re.search(r"failed to (extract|read)|crc|invalid zip|unexpected (buf|eof)|corrupt", text):
        return SubjectError(
            f"a package is corrupt: {detail}",
            mend="clear it from uv's cache (uv cache clean PACKAGE) and try again",
        )
    if re.search(r"\b(401|403|407)\b|unauthorized|forbidden", text):
        return SubjectError(
            "the package registry refuses access",
            mend="check the credentials of the registry (UV_INDEX_*_USERNAME and _PASSWORD, netrc)",
        )
    if re.search(
        r"no wheels? with a matching|no (usable|matching|compatible) wheels?|"
        r"not compatible with|has no (usable )?wheels|no `?wheels",
        text,
    ):
        return SubjectError(
            f"there is no wheel for this platform and Python: {detail}",
            mend="choose another Python (--python) or run on a platform that the stack supports",
        )
    if re.search(r"there (is|are) no versions? of|was not found in the package registry", text):
        return SubjectError(
            f"the registry does not have it: {detail}",
            mend="check the version, or UV_DEFAULT_INDEX if you use a registry of your own",
        )
    if "unsatisfiable" in text or "no solution found" in text:
        return SubjectError(
            f"the packages asked for contradict each other: {detail}",
            mend="the executorch asked for needs other versions than its stack pins; name a "
            "version that the stack is made for",
        )
    return SubjectError(
        f"uv failed: {detail}",
        mend="that is how uv ended; if it names no cause, report it as a fault of edgeproof",
    )


def disk_full(detail: str) -> SubjectError:
    """The disk is full. Two folders may be meant: ours, and uv's own cache of downloads."""
    return SubjectError(
        f"the disk is full (No space left on device) while making a subject in {cache.subjects()}"
        + (f": {detail}" if detail else ""),
        mend=f"a subject takes about 6 GB: free space there (edgeproof subjects remove STACK), set "
        f"{cache.VARIABLE} to a folder on a larger disk, or UV_CACHE_DIR if it is uv's own cache "
        "that is full",
    )


def cannot_write(error: OSError) -> SubjectError:
    """What an ``OSError`` of our own writing under the cache folder means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return disk_full("")
    return SubjectError(
        f"cannot write to the cache folder {cache.root()}: {error.strerror or error}",
        mend=f"set {cache.VARIABLE} to a folder that you can write to",
    )


def _detail(output: str) -> str:
    """The last lines of what uv said that carry the cause, without the addresses of registries."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in output.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith("error:")]
    tail = [line for line in lines[starts[-1] if starts else 0 :] if line]
    tail = [re.sub(r"^(error|cause|hint): ?", "", line) for line in tail[-8:]]
    return re.sub(r"\(?https?://\S+\)?", "(registry)", "; ".join(tail)) or "it said nothing"


def _reason(text: str) -> str:
    for words, said in (
        ("connection refused", "connection refused"),
        ("failed to lookup address", "its name cannot be resolved"),
        ("dns error", "its name cannot be resolved"),
        ("network is unreachable", "the network is unreachable"),
        ("certificate", "its certificate is not trusted"),
        ("timed out", "it does not answer in time"),
        ("timeout", "it does not answer in time"),
        ("reset", "the connection was reset"),
    ):
        if words in text:
            return said
    return "the connection failed"
