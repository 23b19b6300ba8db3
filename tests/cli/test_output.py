"""Where the table and the report go, and what becomes of them when they cannot go there.

Every run ends early, for want of a registry: its verdicts are known, and it takes a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from edgeproof.errors import UsageError
from edgeproof.given import given_path
from edgeproof.report import document

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of POSIX")

MODEL = "def build(): ...\n"
NO_SUBJECT = 4


@pytest.fixture
def here(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


def check(here: Path, *more: str, model: str = "net.py:build", **options: Any) -> Any:
    command = [sys.executable, "-m", "edgeproof", "check", model, "--flows", "portable_fp32"]
    return subprocess.run(
        [*command, *more], cwd=here, check=False, timeout=60, **{"capture_output": True, **options}
    )


def assert_whole(text: str) -> None:
    assert json.loads(text)["cells"][0]["verdict"] == "not_run"


@pytest.mark.parametrize(
    "wrong", [("--flows", "no_such"), ("--executorch", "gone.whl"), ("--subject", "gone")]
)
def test_yesterdays_report_does_not_survive_a_run_that_ends_before_its_own(
    here: Path, wrong: tuple[str, str]
) -> None:
    report = here / "report.json"
    report.write_text('{"gate": {"exit_code": 0}}')
    assert check(here, *wrong, "--json", "report.json").returncode in (2, 4)
    assert not report.exists()
    report.write_text('{"gate": {"exit_code": 0}}')
    assert check(here, "--json", "report.json", model="gone.py:build").returncode == 2
    assert not report.exists()


def test_a_link_is_followed(here: Path) -> None:
    (here / "place").mkdir()
    link = here / "report.json"
    link.symlink_to(here / "place" / "real.json")
    for _ in range(2):  # at first it leads to nothing
        assert check(here, "--json", "report.json").returncode == NO_SUBJECT
        assert link.is_symlink()
        assert_whole((here / "place" / "real.json").read_text())


def test_a_device_stays_one(here: Path) -> None:
    assert check(here, "--json", "/dev/null").returncode == NO_SUBJECT
    assert Path("/dev/null").is_char_device()
    done = check(here, "--json", "/dev/stderr")
    assert_whole(done.stderr.decode())


def test_a_pipe_is_written_to(here: Path) -> None:
    pipe = here / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert check(here, "--json", "pipe").returncode == NO_SUBJECT
    reader.join(10)
    assert_whole(read[0])
    assert pipe.is_fifo()


def test_a_pipe_that_no_one_reads_does_not_hang_the_run(here: Path) -> None:
    os.mkfifo(here / "pipe")
    done = check(here, "--json", "pipe")
    assert done.returncode == 5
    assert b"1 cells asked for: 1 not_run" in done.stdout
    assert b"the report could not be written to" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at hand")
def test_a_full_disk_does_not_take_the_table(here: Path) -> None:
    done = check(here, "--json", "/dev/full")
    assert done.returncode == 5
    assert b"1 cells asked for: 1 not_run" in done.stdout
    assert b"gate: 1 subject(s) could not be prepared" in done.stdout
    assert b"report: " not in done.stdout
    assert b"the report could not be written to /dev/full: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_link_to_itself_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="the report cannot be written to"):
        document.claim(str(tmp_path / "loop"))


def test_a_reader_that_goes_away_does_not_change_the_exit_code(here: Path) -> None:
    command = [sys.executable, "-m", "edgeproof", "check", "net.py:build"]
    process = subprocess.Popen(
        [*command, "--flows", "portable_fp32"], cwd=here, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(60) == NO_SUBJECT


def test_a_listing_whose_reader_goes_away_ends_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "edgeproof", "flows"],
        stdout=write, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    os.close(write)


def test_a_terminal_that_cannot_show_a_name_gets_it_escaped(here: Path) -> None:
    (here / "modèle.py").write_text(MODEL)
    done = check(
        here, model="modèle.py:build", env={**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    )
    assert done.returncode == NO_SUBJECT
    assert rb"mod\xe8le.build" in done.stdout
    assert b"Traceback" not in done.stderr


LONG = "x" * 5000


@pytest.mark.parametrize("name", ["~nosuchuser/a", LONG, f"{LONG}/a"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "{}.py:build", "--flows", "portable_fp32"),
        ("check", "{}.pt2", "--flows", "portable_fp32"),
        ("smoke", "--executorch", "{}.whl"),
        ("smoke", "--json", "{}"),
        ("doctor", "--subject", "{}"),
    ],
    ids=["check", "pt2", "executorch", "json", "subject"],
)
def test_a_path_the_system_refuses_is_wrong_use(arguments: tuple[str, ...], name: str) -> None:
    words = [word.format(name) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "edgeproof", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be looked at: " in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 400


def test_a_cache_folder_of_no_one_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPROOF_CACHE_DIR", "~nosuchuser/cache")
    done = subprocess.run(
        [sys.executable, "-m", "edgeproof", "subjects", "list"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "~nosuchuser/cache cannot be looked at" in done.stderr


def test_a_file_that_cannot_be_read_is_wrong_use(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is seeded."""
    from edgeproof.cases.user import case_from_argument

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        case_from_argument(f"{here / 'net.py'}:build")


def test_a_path_need_not_be_there(tmp_path: Path) -> None:
    assert given_path(str(tmp_path / "none")) == tmp_path / "none"
