"""Apple's Core AI backend for ExecuTorch: a lowering that never computes wrong, a runtime for Linux.

Imported inside a subject of the ``coreai`` stack, where torch, executorch and coreai are installed.
"""
