"""A delegate's asset as the program carries it: a manifest, and files among the named data.

The manifest is the JSON in a delegate's ``processed_bytes``. Its fields ``packaging``, ``hash``, ``path``
and ``files`` are those of executorch's own Core AI backend; ours adds ``edgeproof``, with what its runtime
has to know beyond that (``edgeproof.coreai.compiler.interface``), and a digest of the manifest itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from edgeproof.coreai.runtime.errors import Code, DelegateError

ReadNamedData = Callable[[str], Any]

BUNDLE = "model.aimodel"
OURS = "edgeproof"
_DIGEST = "digest"


def key_of(asset_hash: str, name: str) -> str:
    """Under what key a program holds a file of an asset."""
    return f"coreai/{asset_hash}/{name}"


def bundle_hash(files: Mapping[str, Any]) -> str:
    """The SHA-256 of all files of an asset with their names, whatever order they come in.

    ``files`` maps names to buffers. Names and contents are framed by their lengths, so that nothing can
    move between one file and the next without being seen.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        content = memoryview(files[name])
        digest.update(f"{len(name.encode())}:{name}{content.nbytes}:".encode())
        digest.update(content)
    return digest.hexdigest()


def signed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with its digest in it, in the part that is ours and that others do not look at.

    The hash of the files does not cover in which order inputs are given, say, and a change there computes
    something else without an error.
    """
    return {**manifest, OURS: {**manifest[OURS], _DIGEST: _digest(manifest)}}


def _digest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of all that a manifest says, the digest aside, however it is laid out as JSON."""
    ours = {name: value for name, value in manifest[OURS].items() if name != _DIGEST}
    text = json.dumps({**manifest, OURS: ours}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor at the delegate's boundary. Of a dimension that varies ``shape`` has the two bounds."""

    name: str
    dtype: str
    shape: tuple[int | tuple[int, int | None], ...]

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Tensor:
        """Read back what the compiler wrote."""
        shape = tuple(d if isinstance(d, int) else (d[0], d[1]) for d in entry["shape"])
        return cls(name=entry["name"], dtype=entry["dtype"], shape=shape)

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


@dataclass(frozen=True, kw_only=True)
class State:
    """A tensor the delegate keeps between calls: the graph's input, its new value, and its first one."""

    name: str
    result: str
    initial: str


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The order of what crosses the boundary, which the asset's own function does not tell."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    states: tuple[State, ...] = ()

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Interface:
        """Read back what the compiler wrote."""
        return cls(
            inputs=tuple(Tensor.from_json(t) for t in entry["inputs"]),
            outputs=tuple(Tensor.from_json(t) for t in entry["outputs"]),
            states=tuple(State(**s) for s in entry["states"]),
        )

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {
            "inputs": [t.to_json() for t in self.inputs],
            "outputs": [t.to_json() for t in self.outputs],
            "states": [
                {"name": s.name, "result": s.result, "initial": s.initial} for s in self.states
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Asset:
    """An asset whose every byte is what its manifest says. ``files`` are views of the program's memory."""

    hash: str
    files: Mapping[str, memoryview]
    interface: Interface | None = None
    blobs: tuple[Any, ...] = field(default=(), repr=False)

    def write_to(self, folder: Path) -> Path:
        """Write the bundle below ``folder``; returns the path of the ``.aimodel``."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
        return folder / BUNDLE


def read(processed: bytes, named_data: ReadNamedData) -> Asset:
    """The asset that a delegate's manifest names.

    Raises ``DelegateError`` for a manifest that is none, a file that is missing, and contents that are not
    those the hash was made of.
    """
    manifest = _manifest(processed)
    asset_hash, names = manifest["hash"], manifest["files"]
    blobs = []
    files = {}
    for name in names:
        key = key_of(asset_hash, name)
        try:
            blob = named_data(key)
        except KeyError:
            raise DelegateError(
                f"the program does not hold {key}, which its Core AI delegate names",
                mend="export it again; a .ptd file that belongs to it may have to be loaded with it",
                code=Code.NOT_FOUND,
            ) from None
        blobs.append(blob)
        files[name] = memoryview(blob).cast("B")
    ours = manifest.get(OURS)
    found = bundle_hash(files) if ours is not None else _upstream_hash(files)
    if found != asset_hash:
        raise DelegateError(
            f"the contents of asset {asset_hash[:16]} are not those it was made with (they hash to "
            f"{found[:16] or 'nothing'}): the file was cut short or changed",
            mend="export or copy it again",
            code=Code.INVALID_EXTERNAL_DATA,
        )
    try:
        interface = Interface.from_json(ours) if ours is not None else None
    except (KeyError, TypeError, IndexError) as fault:
        raise _no_manifest(f"its part for {OURS} lacks {fault}") from fault
    return Asset(hash=asset_hash, files=files, interface=interface, blobs=tuple(blobs))


def _manifest(processed: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(processed)
    except ValueError as fault:
        raise _no_manifest(str(fault)) from fault
    if not isinstance(manifest, dict):
        raise _no_manifest("it is no JSON object")
    ours = manifest.get(OURS)
    if ours is not None and not (isinstance(ours, dict) and ours.get(_DIGEST) == _digest(manifest)):
        raise _no_manifest("it does not say any more what its digest was made of")
    packaging = manifest.get("packaging")
    if packaging != "inline":
        raise DelegateError(
            f"the asset is packaged as {packaging!r}; off Apple hardware only 'inline' ones can be "
            "loaded: compiled ones are for Apple's chips, and a sidecar's folder is not known here",
            mend="lower it without uses_sidecar and aot_compile_config",
        )
    names = manifest.get("files")
    if not isinstance(manifest.get("hash"), str) or not isinstance(names, list) or not names:
        raise _no_manifest("it names no hash or no files")
    for name in names:
        # They become paths in a folder of ours, and must not lead out of it.
        if not isinstance(name, str) or not _is_plain(name):
            raise _no_manifest(f"{name!r} is no name of a file")
    if not any(name.startswith(f"{BUNDLE}/") for name in names):
        raise _no_manifest(f"it names no file of {BUNDLE}")
    return manifest


def _is_plain(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and path.parts != () and ".." not in path.parts


def _no_manifest(why: str) -> DelegateError:
    return DelegateError(
        f"the delegate's data is no manifest of a Core AI asset: {why}",
        mend="the file was cut short or changed: export or copy it again",
        code=Code.INVALID_PROGRAM,
    )


def _upstream_hash(files: Mapping[str, memoryview]) -> str:
    """What executorch's own lowering names an asset by: the SHA-256 of its program alone, also stored."""
    programs = [content for name, content in files.items() if name.endswith(".mlirb")]
    stored = [bytes(content) for name, content in files.items() if name.endswith(".hash")]
    if len(programs) != 1 or len(stored) != 1:
        return ""
    found = hashlib.sha256(programs[0])
    return found.hexdigest() if stored[0] == found.digest() else ""
