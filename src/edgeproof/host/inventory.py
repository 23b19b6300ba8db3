"""Says what a Python environment really holds. Runs inside it, as a script: standard library only.

It prints one JSON object as its last line. It must work on every Python from 3.10, import nothing
of what it looks at (importing is what the cells prove) and be quick, because every use of a subject
is preceded by it. ``edgeproof.host.readback`` runs it and reads its answer.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Started without -I, Python puts this script's folder first: its modules must shadow nothing.
if sys.path and Path(sys.path[0]) == Path(__file__).parent:
    del sys.path[0]

import base64
import csv
import hashlib
import json
import os
import platform
import re
import subprocess
import sysconfig
from contextlib import suppress
from importlib import metadata
from typing import Any

SUBJECT = "executorch"


def normalised(name: str) -> str:
    """The name of a project as the registry compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions() -> dict[str, metadata.Distribution]:
    """What is installed, by normalised name; the first on the path wins, as for imports."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(normalised(name), distribution)
    return found


def digest(path: str, algorithm: str) -> str:
    """The hash of a file in the spelling of a RECORD: urlsafe base64 without padding."""
    hasher = hashlib.new(algorithm)
    with open(path, "rb") as file:  # noqa: PTH123 - a thousand files: Path costs as much as hashing
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    return base64.urlsafe_b64encode(hasher.digest()).rstrip(b"=").decode()


def changed_files(distribution: metadata.Distribution) -> list[str]:
    """The files of a distribution that are gone or differ from its RECORD, bytecode aside.

    A distribution without a RECORD (an editable install, a conda package) has nothing to differ
    from, which is not the same as being unchanged: it is reported as ``RECORD`` itself.
    """
    record = distribution.read_text("RECORD")
    if not record:
        return ["RECORD"]
    base = str(distribution.locate_file(""))
    changed = []
    for row in csv.reader(record.splitlines()):
        if len(row) < 2 or row[0].endswith(".pyc") or not row[1]:
            continue
        algorithm, _, expected = row[1].partition("=")
        try:
            same = digest(os.path.join(base, row[0]), algorithm) == expected  # noqa: PTH118
        except (OSError, ValueError):
            same = False
        if not same:
            changed.append(row[0])
    return sorted(changed)


def origin(distribution: metadata.Distribution) -> tuple[str | None, bool]:
    """The SHA-256 of its wheel file if recorded (PEP 610), and whether it is editable."""
    with suppress(ValueError, TypeError, AttributeError):
        direct = json.loads(distribution.read_text("direct_url.json") or "{}")
        archive = direct.get("archive_info", {})
        sha256 = archive.get("hashes", {}).get("sha256")
        if sha256 is None and str(archive.get("hash", "")).startswith("sha256="):
            sha256 = archive["hash"].partition("=")[2]
        return sha256, bool(direct.get("dir_info", {}).get("editable"))
    return None, False


def command(*arguments: str) -> str:
    """What a small system command says, or nothing."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=5, check=False)
        return done.stdout.strip()
    return ""


def processor() -> tuple[str, list[str]]:
    """The CPU's model and features: low-precision results differ between CPUs, so they are kept."""
    model, flags = "", []
    if sys.platform == "darwin":
        model = command("sysctl", "-n", "machdep.cpu.brand_string")
        for line in command("sysctl", "hw.optional").splitlines():
            name, _, value = line.partition(":")
            if value.strip() == "1":
                flags.append(name.removeprefix("hw.optional."))
    else:
        with suppress(OSError):
            fields: dict[str, str] = {}
            text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
            for line in text.partition("\n\n")[0].splitlines():
                name, _, value = line.partition(":")
                fields[name.strip().lower()] = value.strip()
            part = f"{fields.get('cpu implementer', '')} {fields.get('cpu part', '')}".strip()
            model = fields.get("model name") or part
            flags = (fields.get("flags") or fields.get("features") or "").split()
    return model or platform.processor() or "unknown", sorted(set(flags))


def memory_bytes() -> int:
    """Physical memory, or 0 where the system does not tell."""
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def operating_system() -> str:
    """A name a reader recognises: ``Debian GNU/Linux 12 (bookworm)``, ``macOS 15.1``."""
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    with suppress(OSError, AttributeError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.platform())
    return platform.platform()


def cpus() -> int:
    """The CPUs this process may use, which in a container is less than the machine has."""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def inventory() -> dict[str, Any]:
    """Everything that ``plan.subject.Contents`` wants, as JSON values."""
    installed = distributions()
    subject = installed.get(SUBJECT)
    sha256, editable = origin(subject) if subject else (None, False)
    model, flags = processor()
    return {
        "executorch": subject.version if subject else None,
        "recorded_sha256": sha256,
        "editable": editable,
        "packages": {name: installed[name].version for name in sorted(installed)},
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "os": operating_system(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "cpu": model,
        "cpu_flags": flags,
        "cpus": cpus(),
        "memory_bytes": memory_bytes(),
        "site": sysconfig.get_path("purelib"),
        "changed_files": changed_files(subject) if subject and not editable else [],
    }


if __name__ == "__main__":
    print(json.dumps(inventory()), flush=True)
