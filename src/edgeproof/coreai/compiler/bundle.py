"""Writes an asset so that the same program gives the same bytes, on any machine at any time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch.export.exported_program import ExportedProgram

from edgeproof.coreai.compiler.interface import first_values
from edgeproof.coreai.runtime.asset import BUNDLE, Interface, bundle_hash

__all__ = ["BUNDLE", "write"]

# When no SOURCE_DATE_EPOCH is given: the first moment that zip files can hold, as is the custom.
_FIXED_DATE = 315532800


def write(
    folder: Path,
    program: Any,
    edge_program: ExportedProgram,
    interface: Interface,
    minimum_os: Any | None,
) -> str:
    """Write the bundle and the first values of its states below ``folder``; returns the asset's hash.

    The hash is over all of it, so that what differs in anything has another name: assets of one name
    are one and the same, and are stored once.
    """
    path = folder / BUNDLE
    options = {} if minimum_os is None else {"minimum_os": minimum_os}
    asset = program.save_asset(path, **options)
    date = _date()

    def stamp(metadata: Any) -> None:
        metadata.creation_date = date

    asset.update_metadata(stamp)
    for name, content in first_values(edge_program, interface):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    return bundle_hash(files)


def _date() -> float:
    """Seconds since 1970: https://reproducible-builds.org/specs/source-date-epoch/."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        return _FIXED_DATE
    try:
        return int(given)
    except ValueError:
        raise ValueError(
            f"SOURCE_DATE_EPOCH is a number of seconds since 1970, not {given!r}"
        ) from None
