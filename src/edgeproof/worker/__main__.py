"""The worker process: takes cells on its standard input, tells what happens on its standard output.

One JSON object a line, both ways. ``probe`` asks whether flows can work here, ``cell`` runs one, ``exit``
ends. What libraries print goes to a log file instead, one for each cell: both streams are moved away
before anything else is imported. With ``stress SPEC`` as arguments it is a child of ``edgeproof.stress``.

Started by path (``python worker/__main__.py``): edgeproof is not installed in the subject, only its package
is made importable, and nothing beside it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def _make_importable(package: Path) -> None:
    """Let ``import edgeproof`` find this very package without putting its folder's siblings on the path."""
    spec = importlib.util.spec_from_file_location(
        "edgeproof", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["edgeproof"] = module
    spec.loader.exec_module(module)


def main() -> None:
    """Run until told to exit, or until the host is gone."""
    if sys.path and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    _make_importable(Path(__file__).resolve().parent.parent)
    if sys.argv[1] == "stress":
        from edgeproof.stress.child import main as stress

        stress(sys.argv[2])
    else:
        from edgeproof.worker.session import serve

        serve(log=Path(sys.argv[1]), crash_log=Path(sys.argv[2]))
    sys.stdout.flush()
    # Not sys.exit: delegates' own threads and atexit hooks have nothing left to say.
    os._exit(0)


if __name__ == "__main__":
    main()
