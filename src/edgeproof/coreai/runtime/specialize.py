"""Turns an asset into a model that Core AI's own runtime loads, and loads it.

The runtime of ``coreai-core`` off Apple hardware takes no ``.aimodel``: it takes a folder with the program
compiled to its executable form. How that is made is in ``coreai.authoring.AIModelAsset.executable()``.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

from edgeproof.coreai.runtime.asset import Asset
from edgeproof.coreai.runtime.errors import Code, DelegateError
from edgeproof.coreai.runtime.waiting import answer_of

_PROGRAM = "main-universal.odix"


def make(asset: Asset, folder: Path) -> None:
    """Compile an asset into ``folder``, with what it takes on the way beside that.

    Raises ``DelegateError`` when Core AI does not take it.
    """
    from coreai._compiler._transforms import GlobalOptions, PassEntry, Pipelines, apply_passes_sync
    from coreai.authoring.asset import AIModelAsset, serialize_module_to_odix

    with tempfile.TemporaryDirectory(dir=folder.parent) as bundle:
        path = asset.write_to(Path(bundle))
        try:
            module = AIModelAsset.load(path).program._mlir_module
            passes = [
                PassEntry(pass_name="define-graph-output-intents", options="intent=return"),
                PassEntry.get(Pipelines.CORE_TO_ODIX),
            ]
            apply_passes_sync(module, passes=passes, options=GlobalOptions(output_directory=folder))
            serialize_module_to_odix(module=module, path=folder / _PROGRAM)
        except OSError:
            raise
        except Exception as fault:
            full = _full_disk(fault)
            if full is not None:
                raise full from fault
            # After the first line it is the whole program.
            raise _not_taken(asset, str(fault).partition("\n")[0]) from fault
    if not (folder / _PROGRAM).is_file():
        raise _not_taken(asset, "it wrote nothing")


def load(folder: Path) -> Any:
    """The model in ``folder``, a ``coreai.runtime.AIModel``."""
    from coreai.runtime import AIModel

    return answer_of(lambda: AIModel.load(folder))


def _full_disk(fault: Exception) -> OSError | None:
    """What Core AI says of a file it could not write, as the error that it was."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if os.strerror(number) in str(fault):
            return OSError(number, os.strerror(number))
    return None


def _not_taken(asset: Asset, why: object) -> DelegateError:
    return DelegateError(
        f"Core AI does not compile asset {asset.hash[:16]}: {why}",
        mend="lower the model again with the versions of coreai-core and coreai-torch that are installed",
        code=Code.INVALID_PROGRAM,
    )
