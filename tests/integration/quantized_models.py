"""Models for the quantized flows: one that has nothing to quantize, and some whose quantizer ruins them.

Run in the subject, by ``FILE.py:FACTORY``. The ruined ones stand for a broken quantizer: convert_pt2e is
replaced in the worker, for the next cell only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchao.quantization.pt2e import quantize_pt2e


class Sine(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sin()


def nothing_to_quantize() -> Any:
    return Sine(), (torch.randn(16, 4),)


def _net() -> Any:
    layers = (torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return torch.nn.Sequential(*layers), (torch.randn(64, 4),)


def fine() -> Any:
    return _net()


def _next_is_converted(change: Callable[[Any], None]) -> None:
    real = quantize_pt2e.convert_pt2e

    def convert(*args: Any, **kwargs: Any) -> Any:
        quantize_pt2e.convert_pt2e = real
        converted = real(*args, **kwargs)
        change(converted)
        return converted

    quantize_pt2e.convert_pt2e = convert


def _answer(graph_module: Any, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` makes of the output's node in its place."""
    output = graph_module.graph.output_node()
    answer = torch.fx.node.map_arg(output.args[0], lambda node: node)[0]
    with graph_module.graph.inserting_before(output):
        output.replace_input_with(answer, make((graph_module.graph, answer)))
    graph_module.recompile()


def _called(target: Any, *more: Any) -> Callable[[Any], Any]:
    return lambda made: made[0].call_function(target, (made[1], *more))


def quantizer_gives_zeros() -> Any:
    mul = torch.ops.aten.mul.Scalar
    _next_is_converted(lambda converted: _answer(converted, _called(mul, 0.0)))
    return _net()


def quantizer_turns_the_sign() -> Any:
    neg = torch.ops.aten.neg.default
    _next_is_converted(lambda converted: _answer(converted, _called(neg)))
    return _net()


def quantizer_forgets_the_input() -> Any:
    def forget(converted: Any) -> None:
        graph = converted.graph
        (given,) = [node for node in graph.nodes if node.op == "placeholder"]
        with graph.inserting_after(given):
            zeros = graph.call_function(torch.ops.aten.mul.Scalar, (given, 0.0))
        given.replace_all_uses_with(zeros, delete_user_cb=lambda user: user is not zeros)
        converted.recompile()

    _next_is_converted(forget)
    return _net()


def quantizer_does_nothing() -> Any:
    """A quantizer that annotates nothing in a model it should quantize."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    real = XNNPACKQuantizer.annotate

    def annotate(self: Any, model: Any) -> Any:
        XNNPACKQuantizer.annotate = real
        return model

    XNNPACKQuantizer.annotate = annotate
    return _net()
