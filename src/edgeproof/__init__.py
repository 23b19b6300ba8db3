"""Proof that a PyTorch model exports, lowers and runs on every ExecuTorch backend."""

from __future__ import annotations

__version__ = "0.1.0"
