"""``python -m edgeproof`` is the ``edgeproof`` command."""

from __future__ import annotations

from edgeproof.cli.app import main

if __name__ == "__main__":
    main()
