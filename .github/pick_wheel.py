"""Name the one executorch wheel in a folder that this Python on this machine would install.

    python pick_wheel.py FOLDER [VERSION]

Prints its path. A build hands over the wheels of every platform in one folder; a proof of the
wrong one, or of whichever came first, would be none. So no fitting wheel, and more than one, end
with exit code 2 and the names of what was found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version


class NoChoiceError(Exception):
    """There is not exactly one wheel to take."""


def pick(folder: Path, version: str = "") -> Path:
    """The wheel under ``folder``, of ``version`` if one is given, that fits the running Python."""
    try:
        wanted = Version(version) if version else None
    except InvalidVersion:
        raise NoChoiceError(f"{version!r} is not a version") from None
    if not folder.is_dir():
        raise NoChoiceError(f"there is no folder {folder}")
    here = set(sys_tags())
    found = sorted(folder.rglob("*.whl"))
    fitting = []
    for wheel in found:
        try:
            project, held, _, tags = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename as error:
            raise NoChoiceError(f"{wheel.name} is not the name of a wheel: {error}") from None
        if project == "executorch" and here & tags and wanted in (None, held):
            fitting.append(wheel)
    if len(fitting) != 1:
        what = f"executorch {version}".strip()
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        listed = "".join(f"\n  {wheel.relative_to(folder)}" for wheel in found) or "\n  (nothing)"
        raise NoChoiceError(
            f"{len(fitting) or 'no'} wheels of {what} fit {python} on this machine "
            f"({next(sys_tags())}); exactly one must. In {folder} there are:{listed}"
        )
    return fitting[0]


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code is 0 or, with the reason on stderr, 2."""
    if len(arguments) not in (1, 2):
        print("usage: pick_wheel.py FOLDER [VERSION]", file=sys.stderr)
        return 2
    try:
        print(pick(Path(arguments[0]), *arguments[1:]).as_posix())
    except NoChoiceError as error:
        print(f"pick_wheel: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
