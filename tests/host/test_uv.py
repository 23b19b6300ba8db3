from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgeproof.host import cache
from edgeproof.host.uv import UvFailed, environment, explain, run_uv


def test_settings_of_registry_and_cache_are_kept_and_others_are_not() -> None:
    kept = environment(
        {
            "UV_INDEX_URL": "https://registry.example/simple",
            "UV_CACHE_DIR": "relative",
            "HTTPS_PROXY": "http://proxy.example",
            "UV_SYSTEM_PYTHON": "1",
            "UV_CONSTRAINT": "c.txt",
            "VIRTUAL_ENV": "/x",
            "PYTHONPATH": "/y",
        }
    )
    assert kept["UV_INDEX_URL"] == "https://registry.example/simple"
    assert kept["UV_CACHE_DIR"] == str(Path("relative").absolute())
    assert kept["HTTPS_PROXY"] == "http://proxy.example"
    assert not kept.keys() & {"UV_SYSTEM_PYTHON", "UV_CONSTRAINT", "VIRTUAL_ENV", "PYTHONPATH"}


def test_what_uv_says_last_is_in_the_error_of_an_unknown_failure() -> None:
    with pytest.raises(UvFailed) as caught:
        run_uv(["pip", "no-such-command"])
    assert "no-such-command" in caught.value.failure().message


@pytest.mark.parametrize(
    ("output", "message", "mend"),
    [
        (
            "error: Failed to read `executorch @ file:///e.whl`\n  cause: Hash mismatch for `e`",
            "its hash differs",
            "uv cache clean",
        ),
        (
            "error: Failed to download `torch==2.13.0`\n  cause: Failed to extract archive: t.whl\n"
            "  cause: I/O operation failed during extraction\n  cause: unexpected BufError",
            "a package is corrupt",
            "uv cache clean",
        ),
        (
            "error: Failed to download `torch==2.13.0`\n  cause: Failed to extract archive: t.whl\n"
            "  cause: error decoding response body\n  cause: Connection reset by peer",
            "cannot be reached (the connection was reset)",
            "network",
        ),
        (
            "error: Failed to fetch: `https://user:word@registry.example/simple/torch/`\n"
            "  cause: HTTP status client error (403 Forbidden)",
            "refuses access",
            "credentials",
        ),
        ("error: nothing known https://user:word@registry.example/x", "uv failed: nothing", ""),
    ],
)
def test_failures_are_told_by_cause_and_mend(output: str, message: str, mend: str) -> None:
    error = explain(output)
    assert message in error.message
    assert mend in error.mend
    assert "registry.example" not in error.message


def test_no_uv_is_left_when_the_user_interrupts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        script = (
            "from edgeproof.host.uv import run_uv\n"
            "import sys\n"
            "run_uv(['pip', 'install', '--target', sys.argv[1], 'nothing'])\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "t")],
            env={
                **os.environ,
                "UV_DEFAULT_INDEX": f"http://127.0.0.1:{silent.getsockname()[1]}/simple",
                "UV_CACHE_DIR": str(tmp_path / "cache"),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()  # uv has asked and waits for an answer
        with connection:
            began = time.monotonic()
            process.send_signal(signal.SIGINT)  # to us alone, not to the group as a terminal does
            _, said = process.communicate(timeout=20)
            assert time.monotonic() - began < 10
            assert "KeyboardInterrupt" in said
            connection.settimeout(5)
            while connection.recv(4096):  # ends only when uv has gone
                pass


def test_the_cache_folder_is_the_users_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPROOF_CACHE_DIR", "some where")
    assert cache.root() == Path.cwd() / "some where"
    monkeypatch.delenv("EDGEPROOF_CACHE_DIR")
    assert cache.root().name == "edgeproof"
    assert cache.root().is_absolute()


def test_a_failure_of_no_known_kind_is_told_without_pointing_at_what_was_not_printed() -> None:
    failure = explain("error: something odd\n  cause: the moon")
    assert failure.message == "uv failed: something odd; the moon"
    assert "above" not in failure.mend
