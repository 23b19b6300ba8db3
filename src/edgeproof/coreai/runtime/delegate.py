"""The Core AI delegate: what ExecuTorch's runtime calls when a program has a part for ``CoreAIBackend``.

Core AI keeps its arrays in memory of its own. What comes in is copied there once, straight from
ExecuTorch's tensors whatever their strides; what comes out is copied once into ExecuTorch's. The values a
program keeps between calls stay here, copied once a call.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy

from edgeproof.coreai.runtime import asset as assets
from edgeproof.coreai.runtime import options
from edgeproof.coreai.runtime.asset import Asset, Interface, State, Tensor
from edgeproof.coreai.runtime.cache import Cache
from edgeproof.coreai.runtime.errors import Code, DelegateError
from edgeproof.coreai.runtime.waiting import answer_of

_Array: TypeAlias = "numpy.ndarray[Any, Any]"
_BINDINGS_SECONDS = 0.1
# What can be handed over, by the names that ExecuTorch, numpy and Core AI agree on. The bridge carries
# bfloat16 as the bits it is made of.
_CARRIED: Mapping[str, numpy.dtype[Any]] = {
    **{
        name: numpy.dtype(name)
        for name in (
            "float32",
            "float16",
            "int32",
            "int16",
            "int8",
            "uint8",
            "uint16",
            "uint32",
            "bool",
        )
    },
    "bfloat16": numpy.dtype(ml_dtypes.bfloat16),
}


class Backend:
    """The Python half of the backend; ``native/bridge.cpp`` is the other."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.last_error = ""
        self._shared: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        # One for all assets would make those that have nothing in common wait for each other.
        self._sharing = tuple(threading.Lock() for _ in range(16))

    def init(
        self,
        processed: bytes,
        specs: Mapping[str, bytes],
        named_data: assets.ReadNamedData,
        given: Mapping[str, Any],
        method: str,
    ) -> Delegate:
        """Load a delegate of ``method``. ``given`` are the load-time options, ``specs`` the compile specs."""
        try:
            wanted = options.parse(given)
            asset = assets.read(processed, named_data)
            model = self._model(asset, wanted)
            return Delegate(model, asset, self)
        except Exception as fault:
            self.last_error = f"{method}: {fault}"
            raise

    def _model(self, asset: Asset, wanted: options.LoadOptions) -> Any:
        if not wanted.share_model:
            return self._loaded(asset, wanted)
        with self._sharing[hash(asset.hash) % len(self._sharing)]:
            model = self._shared.get(asset.hash)
            if model is None:
                model = self._shared[asset.hash] = self._loaded(asset, wanted)
            return model

    def _loaded(self, asset: Asset, wanted: options.LoadOptions) -> Any:
        cache = self.cache
        if wanted.cache_dir is not None:
            cache = Cache(wanted.cache_dir, limit=self.cache.limit)
        from edgeproof.coreai.runtime import specialize

        return cache.load(
            asset.hash, lambda folder: specialize.make(asset, folder), specialize.load
        )


class Delegate:
    """One loaded delegate, of one method. Its calls come one after the other.

    ExecuTorch's methods are for one thread at a time: the Python bindings' calls take turns
    (``edgeproof.coreai.runtime.turns``), callers of the C++ API see to it. Where two calls are inside all
    the same, the second has overwritten what the first was given: both fail, neither is answered wrong.
    """

    def __init__(self, model: Any, asset: Asset, backend: Backend) -> None:
        self._backend = backend
        self._model = model  # what is shared is shared for as long as a delegate has it
        # A model of one function names it main; the delegate's graph is always that.
        self._function = model.load_function("main")
        desc = self._function.desc
        interface = asset.interface or _interface_of(desc)
        self._inputs, self._outputs = interface.inputs, interface.outputs
        self._check(desc, interface)
        self._slots = [_Slot(tensor) for tensor in self._inputs]
        self._states = [
            _Kept(state, _first_value(state, asset, desc.input_descriptor(state.name)))
            for state in interface.states
        ]
        self._lock = threading.Lock()
        self._crossed = False

    @property
    def input_count(self) -> int:
        """How many of a call's values are inputs; the others are outputs."""
        return len(self._inputs)

    def _check(self, desc: Any, interface: Interface) -> None:
        """Refuse at load what could not be handed over right in a call."""
        for kind, tensors in (("input", interface.inputs), ("output", interface.outputs)):
            for tensor in tensors:
                if tensor.dtype not in _CARRIED:
                    raise DelegateError(
                        f"{kind} {tensor.name!r} is {tensor.dtype}, which Core AI cannot carry here",
                        mend=f"it carries {', '.join(_CARRIED)}",
                        code=Code.NOT_SUPPORTED,
                    )
        states = {state.name for state in interface.states}
        results = {state.result for state in interface.states}
        _same_names("input", desc.input_names, {t.name for t in interface.inputs} | states)
        _same_names("output", desc.output_names, {t.name for t in interface.outputs} | results)
        for kind, tensors, described in (
            ("input", interface.inputs, desc.input_descriptor),
            ("output", interface.outputs, desc.output_descriptor),
        ):
            for tensor in tensors:
                _same_kind(kind, tensor, described(tensor.name))

    def execute(
        self, inputs: Sequence[tuple[str, _Array]], outputs: Sequence[tuple[str, _Array]]
    ) -> list[_Array | None]:
        """Answer one call: write the outputs, return those that have other sizes than their tensors.

        Values are pairs of a dtype's name and an array over ExecuTorch's memory; anything else is a value
        that is no tensor. The bridge gives a returned output's tensor its sizes, and writes it.
        """
        try:
            if not self._lock.acquire(blocking=False):
                self._crossed = True
                raise _crossing()
            try:
                return self._answer(inputs, outputs)
            finally:
                self._lock.release()
        except BaseException as fault:
            self._backend.last_error = str(fault) or type(fault).__name__
            if isinstance(fault, KeyboardInterrupt):
                # The bindings make an error code of it. Not at once: what they still write to Python's
                # streams must not be interrupted, C++ ends the process when it is.
                threading.Timer(_BINDINGS_SECONDS, _thread.interrupt_main).start()
            raise

    def _answer(
        self, inputs: Sequence[tuple[str, _Array]], outputs: Sequence[tuple[str, _Array]]
    ) -> list[_Array | None]:
        self._crossed = False
        try:
            given = {state.name: state.array for state in self._states}
            for slot, value in zip(self._slots, inputs, strict=True):
                given[slot.tensor.name] = slot.filled(value)
            answers = answer_of(lambda: self._function._function(inputs=given, state={}))
            left = self._hand_over(answers, outputs)
            if self._crossed:
                raise _crossing()
            for state in self._states:
                state.take(answers[state.result])
        except BaseException:
            for slot in self._slots:
                # Interrupted, Core AI may still be reading what the next call would write to.
                slot.give_up()
            for state in self._states:
                state.give_up()
            raise
        return left

    def _hand_over(
        self, answers: Mapping[str, Any], outputs: Sequence[tuple[str, _Array]]
    ) -> list[_Array | None]:
        if len(outputs) != len(self._outputs):
            raise DelegateError(
                f"the program takes {len(outputs)} outputs from a delegate that has "
                f"{len(self._outputs)} ({', '.join(t.name for t in self._outputs)})",
                code=Code.INVALID_PROGRAM,
            )
        left: list[_Array | None] = []
        for tensor, value in zip(self._outputs, outputs, strict=True):
            target = _array_of("output", tensor, value)
            answer = _view(answers[tensor.name], tensor, target.dtype)
            if answer.shape == target.shape:
                numpy.copyto(target, answer)
                left.append(None)
            else:
                left.append(answer)
        return left


def _crossing() -> DelegateError:
    return DelegateError(
        "two threads are inside one method at once, and the later call has overwritten what the earlier "
        "one was given",
        mend="let calls of one method take turns, or load the program once for each thread",
        code=Code.INVALID_STATE,
    )


class _Slot:
    """The place of one input: an array of Core AI's own, kept between calls and written in place.

    Making a ``coreai.runtime`` array copies element by element, at a tenth of the speed of memory.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._shape: tuple[int, ...] | None = None
        self._array: Any = None
        self._memory: _Array | None = None

    def filled(self, value: tuple[str, _Array]) -> Any:
        """Core AI's array with the value in it."""
        given = _array_of("input", self.tensor, value)
        if given.shape != self._shape:
            self._check_shape(given.shape)
            self._make(given)
        assert self._memory is not None
        numpy.copyto(self._memory, given)
        return self._array

    def give_up(self) -> None:
        """Leave the array to whoever has it, and make another for the next call."""
        self._shape = self._array = self._memory = None

    def _make(self, like: _Array) -> None:
        from coreai.runtime import _NDArray

        dtype = _CARRIED[self.tensor.dtype]
        self._array = _NDArray(numpy.zeros(like.shape, dtype), "bytes")
        self._memory = _writable(self._array, like)
        self._shape = like.shape

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        wanted = self.tensor.shape
        fits = len(shape) == len(wanted) and all(
            _fits(size, bound) for size, bound in zip(shape, wanted, strict=True)
        )
        if not fits:
            raise DelegateError(
                f"input {self.tensor.name!r} is of shape {shape}, the delegate was made for "
                f"({', '.join(_said(bound) for bound in wanted)})",
                mend="export with dynamic_shapes that allow it",
                code=Code.INVALID_ARGUMENT,
            )


class _Kept:
    """What a program keeps between calls, in an array of its own.

    What Core AI answers lies where the next call's answer will lie too. Given back as it is, it would be
    written over while that call still reads it.
    """

    def __init__(self, state: State, first: _Array) -> None:
        self.name, self.result = state.name, state.result
        self._hold(first)

    def take(self, answer: Any) -> None:
        """Keep what a call made of it."""
        tensor = Tensor(name=self.name, dtype=self._dtype, shape=self._memory.shape)
        numpy.copyto(self._memory, _view(answer, tensor, self._memory.dtype))

    def give_up(self) -> None:
        """Leave the array to whoever has it, and have the values in another."""
        self._hold(self._memory)

    def _hold(self, values: _Array) -> None:
        from coreai.runtime import _NDArray

        self.array = _NDArray(values, "bytes")
        self._dtype = str(self.array.dtype)
        self._memory = _writable(self.array, values)


def _fits(size: int, bound: int | tuple[int, int | None]) -> bool:
    if isinstance(bound, int):
        return size == bound
    low, high = bound
    return size >= low and (high is None or size <= high)


def _said(bound: int | tuple[int, int | None]) -> str:
    if isinstance(bound, int):
        return str(bound)
    return f"{bound[0]}..{'any' if bound[1] is None else bound[1]}"


def _array_of(kind: str, tensor: Tensor, value: Any) -> _Array:
    """The array of a value from the bridge, after a look at its dtype."""
    if not isinstance(value, tuple):
        raise DelegateError(
            f"{kind} {tensor.name!r} is a {type(value).__name__}, Core AI takes tensors alone",
            code=Code.INVALID_ARGUMENT,
        )
    dtype, array = value
    if dtype != tensor.dtype:
        raise DelegateError(
            f"{kind} {tensor.name!r} is {dtype}, the delegate was made for {tensor.dtype}",
            code=Code.INVALID_ARGUMENT,
        )
    return cast("_Array", array)


def _writable(array: Any, like: _Array) -> _Array:
    """A view of a Core AI array's memory that can be written to; the array must outlive it.

    ``NDArray.numpy()`` gives a copy; the buffer protocol gives the memory itself, but for reading.
    """
    if like.size == 0:
        return numpy.empty(like.shape, like.dtype)
    address = numpy.frombuffer(array, numpy.uint8).__array_interface__["data"][0]
    memory = (ctypes.c_char * like.nbytes).from_address(address)
    return numpy.frombuffer(memory, like.dtype).reshape(like.shape)


def _view(array: Any, tensor: Tensor, dtype: numpy.dtype[Any]) -> _Array:
    """What Core AI answered, as numpy in the dtype the bridge carries it in, without a copy if it can be."""
    if array.dtype != tensor.dtype:
        raise DelegateError(
            f"Core AI answered output {tensor.name!r} as {array.dtype} where {tensor.dtype} was agreed on",
            code=Code.INTERNAL,
        )
    shape = tuple(array.shape)
    if 0 in shape:
        return numpy.empty(shape, dtype)
    buffer = memoryview(array)
    raw = buffer if buffer.c_contiguous else buffer.tobytes()  # gathers in C order
    return numpy.frombuffer(raw, dtype).reshape(shape)


def _first_value(state: State, asset: Asset, desc: Any) -> _Array:
    shape = tuple(desc.shape)
    dtype = _CARRIED[desc.dtype]
    content = asset.files.get(state.initial)
    if content is None:
        raise DelegateError(
            f"the asset holds no first value of {state.name!r}, which it keeps between calls",
            mend="lower it with edgeproof.coreai, which stores it, or without take_over_mutable_buffer",
            code=Code.INVALID_PROGRAM,
        )
    values = numpy.frombuffer(content, dtype)
    if any(size < 0 for size in shape) or values.size != numpy.prod(shape, dtype=int):
        raise DelegateError(
            f"the first value of {state.name!r} has {values.size} elements, its shape is {shape}",
            code=Code.INVALID_PROGRAM,
        )
    return values.reshape(shape)


def _interface_of(desc: Any) -> Interface:
    """What an asset that others lowered tells of itself: names in order, no bounds.

    A name on both sides is something kept between calls, and no first value comes with it.
    """

    def tensor(name: str, described: Any) -> Tensor:
        shape = tuple(d if d >= 0 else (0, None) for d in described.shape)
        return Tensor(name=name, dtype=described.dtype, shape=shape)

    both = set(desc.input_names) & set(desc.output_names)
    return Interface(
        inputs=tuple(
            tensor(n, desc.input_descriptor(n)) for n in desc.input_names if n not in both
        ),
        outputs=tuple(
            tensor(n, desc.output_descriptor(n)) for n in desc.output_names if n not in both
        ),
        states=tuple(State(name=n, result=n, initial="") for n in desc.input_names if n in both),
    )


def _same_names(kind: str, found: Sequence[str], wanted: set[str]) -> None:
    if set(found) != wanted:
        raise DelegateError(
            f"the asset's {kind}s are {', '.join(sorted(found)) or 'none'}, its manifest names "
            f"{', '.join(sorted(wanted)) or 'none'}",
            mend="export it again",
            code=Code.INVALID_PROGRAM,
        )


def _same_kind(kind: str, tensor: Tensor, described: Any) -> None:
    """Refuse a tensor that Core AI describes otherwise; a dimension that varies there is below zero."""
    shape = tuple(described.shape)
    fits = len(shape) == len(tensor.shape) and all(
        size < 0 or _fits(size, bound) for size, bound in zip(shape, tensor.shape, strict=True)
    )
    if described.dtype != tensor.dtype or not fits:
        raise DelegateError(
            f"{kind} {tensor.name!r} is {described.dtype} of shape {shape} in the asset, its manifest says "
            f"{tensor.dtype} of ({', '.join(_said(bound) for bound in tensor.shape)})",
            mend="export it again",
            code=Code.INVALID_PROGRAM,
        )


def default_folder() -> Path:
    """Where specialized models go unless install_runtime() or coreai_cache_dir says otherwise."""
    from edgeproof.native.build import cache_folder

    return cache_folder() / "coreai"
