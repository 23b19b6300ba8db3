"""Apple's Core AI with edgeproof's lowering and delegate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeproof.plan.flow import LINUX_X86, MACOS, SINGLE, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

_MODES = {
    "fp32": "in single precision",
    "fp16": "in half precision",
    "w8a8": "with weights and activations in eight bits",
    "w8": "with weights in eight bits",
    "w4": "with weights in four bits",
}


def flows(prefix: str, what: str, *, smoke: tuple[str, ...]) -> tuple[Flow, ...]:
    """A flow for each precision; ``smoke`` are those that ``edgeproof smoke`` runs."""
    return tuple(
        Flow(
            name=f"{prefix}_{mode}",
            summary=f"Core AI {how}, {what}",
            stack="coreai",
            delegate="CoreAIBackend",
            imports=("executorch.backends.apple.coreai", "coreai_torch", "coreai_opt"),
            lowers_on=(LINUX_X86, MACOS),
            runs_on=(LINUX_X86,),
            cannot_run="edgeproof's Core AI delegate is for Linux on x86-64",
            quantized=mode.startswith("w"),
            installs="edgeproof.coreai.runtime:install_runtime",
            in_smoke=mode in smoke,
            cache_option="coreai_cache_dir",
            cache_stats="edgeproof.coreai.runtime.cache:cache_stats",
            cache_clear="edgeproof.coreai.runtime.cache:clear",
        )
        for mode, how in _MODES.items()
    )


FLOWS = flows("coreai", "lowered by edgeproof.coreai", smoke=("fp32", "fp16", "w8a8", "w8"))


def mode_of(flow: Flow) -> str:
    """The precision that is the last part of a flow's name."""
    return flow.name.rpartition("_")[2]


def computes_in(flow: Flow) -> Arithmetic:
    """Half precision where the program is cast to it; else single, integers being weights or codes."""
    return Arithmetic(dtype="float16") if mode_of(flow) == "fp16" else SINGLE


def prepare(flow: Flow, model: Model) -> Model:
    """Quantized by coreai-opt, calibrated on the model's own samples."""
    if not flow.quantized:
        return model
    from edgeproof.coreai.precision import NothingToQuantizeError, quantize

    args = model.positional_args()
    samples = [model.positional_args(sample) for sample in model.calibration]
    try:
        module, count = quantize(
            model.module,
            args,
            mode_of(flow),
            calibration=samples,
            dynamic_shapes=model.dynamic_shapes,
        )
    except NothingToQuantizeError:
        return model.replace(model.module, quantized_nodes=0)
    return model.replace(module, quantized_nodes=count)


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower with our passes and partitioner."""
    from edgeproof.coreai.lowering import lower as to_coreai
    from edgeproof.coreai.precision import to_half

    return to_coreai(to_half(program) if mode_of(flow) == "fp16" else program)


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Read every delegate's asset as the runtime would: whole, and of the hash that it is named by.

    Raises ``ValueError`` for one that is not.
    """
    from edgeproof.coreai.runtime import asset
    from edgeproof.coreai.runtime.errors import DelegateError
    from edgeproof.flows.delegates import delegates

    assets = []
    for delegate in delegates(edge):
        store = delegate.named_data_store_output
        held = (
            {key: store.buffers[entry.buffer_index] for key, entry in store.pte_data.items()}
            if store is not None
            else {}
        )
        try:
            read = asset.read(bytes(delegate.processed_bytes), held.__getitem__)
        except DelegateError as fault:
            raise ValueError(str(fault)) from fault
        assets.append({"hash": read.hash, "files": {n: len(c) for n, c in read.files.items()}})
    return {"assets": assets}
