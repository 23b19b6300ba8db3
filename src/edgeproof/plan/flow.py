"""Flows: one backend at one precision, and what it can do on a given platform."""

from __future__ import annotations

import platform
from dataclasses import dataclass


def this_platform() -> str:
    """``<system>-<machine>`` in lower case, as the stacks name platforms: ``linux-x86_64``."""
    return f"{platform.system()}-{platform.machine()}".lower()


LINUX_X86 = "linux-x86_64"
LINUX_ARM = "linux-aarch64"
MACOS = "darwin-arm64"
WINDOWS = "windows-amd64"
EVERYWHERE = (LINUX_X86, LINUX_ARM, MACOS, WINDOWS)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """What a backend computes in on this machine, which sets the noise floor of its answers.

    ``biased`` units do not round to nearest: their errors add up over a deep network instead of
    cancelling, and the floor is that of rounding every result upwards.
    """

    dtype: str
    biased: bool = False


SINGLE = Arithmetic(dtype="float32")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A lowering recipe: a backend, a precision and the stack that carries them.

    ``delegate`` is the name under which the backend is registered with the ExecuTorch runtime, empty
    for the portable kernels. ``imports`` are the modules that must import before the flow can lower.
    ``libraries`` are those of the system that no wheel brings, and ``libraries_mend`` what installs them.
    ``lowers_on`` and ``runs_on`` are platforms; where a flow lowers but does not run, a cell ends
    ``not_run`` after ``serialize`` and ``cannot_run`` is the declared reason. ``quantized`` flows
    are compared with their quantized module. ``installs`` names a function (``module:function``) that makes
    the delegate known to the runtime where the wheel does not. ``in_smoke`` tells whether ``edgeproof
    smoke`` runs the flow unasked.

    What ``edgeproof stress`` has to know: the load-time option that names the delegate's cache folder, and
    functions (``module:function``) that give its hits and misses and that take its entries away;
    ``serial`` names kinds of calls (``load``, ``run``) that the backend answers one at a time by
    design, each with the reason; where a backend does not give the same bits each time, its outputs may be
    off by ``unstable``, relative to their largest value, for the reason ``unstable_because``.
    """

    name: str
    summary: str
    stack: str
    delegate: str
    imports: tuple[str, ...]
    lowers_on: tuple[str, ...]
    runs_on: tuple[str, ...]
    cannot_run: str = ""
    libraries: tuple[str, ...] = ()
    libraries_mend: str = ""
    quantized: bool = False
    installs: str = ""
    in_smoke: bool = True
    cache_option: str = ""
    cache_stats: str = ""
    cache_clear: str = ""
    serial: tuple[tuple[str, str], ...] = ()
    unstable: float = 0.0
    unstable_because: str = ""

    def lowers_here(self, on: str | None = None) -> bool:
        """Whether the flow can lower on this platform (or on the one named)."""
        return (on or this_platform()) in self.lowers_on

    def runs_here(self, on: str | None = None) -> bool:
        """Whether the flow can run on this platform (or on the one named)."""
        return (on or this_platform()) in self.runs_on
