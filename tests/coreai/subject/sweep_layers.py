"""The layers of the sweep: convolutions, pools, normalisations, attention, resizing, recurrence."""

import torch
import torch.nn.functional as F

# Pools: kernel, stride, padding, ceil_mode, and what is particular to each.
for _rank, _shape in ((1, (2, 3, 11)), (2, (2, 3, 9, 11)), (3, (1, 2, 6, 7, 9))):
    _avg = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[_rank - 1]
    _max = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[_rank - 1]
    case(f"avg_pool{_rank}d/default", lambda x, g=_avg: g(x, 2), f(*_shape))
    case(f"avg_pool{_rank}d/stride", lambda x, g=_avg: g(x, 3, 2), f(*_shape))
    case(f"avg_pool{_rank}d/padding", lambda x, g=_avg: g(x, 3, 2, 1), f(*_shape))
    case(f"avg_pool{_rank}d/ceil_mode", lambda x, g=_avg: g(x, 3, 2, ceil_mode=True), f(*_shape))
    case(
        f"avg_pool{_rank}d/ceil_mode stride 3",
        lambda x, g=_avg: g(x, 2, 3, ceil_mode=True),
        f(*_shape),
    )
    case(
        f"avg_pool{_rank}d/ceil_mode padding",
        lambda x, g=_avg: g(x, 3, 2, 1, ceil_mode=True),
        f(*_shape),
    )
    case(
        f"avg_pool{_rank}d/ceil last window left out",
        lambda x, g=_avg: g(x, 2, 3, 1, ceil_mode=True),
        f(*_shape),
    )
    case(
        f"avg_pool{_rank}d/count_include_pad",
        lambda x, g=_avg: g(x, 3, 2, 1, count_include_pad=False),
        f(*_shape),
    )
    case(
        f"avg_pool{_rank}d/ceil and count",
        lambda x, g=_avg: g(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        f(*_shape),
    )
    case(f"avg_pool{_rank}d/unbatched", lambda x, g=_avg: g(x, 2), f(*_shape[1:]))
    case(
        f"avg_pool{_rank}d/f16",
        lambda x, g=_avg: g(x, 3, 2, 1, count_include_pad=False) if g is not F.avg_pool3d else x,
        h(*_shape),
    )
    if _rank > 1:
        case(
            f"avg_pool{_rank}d/divisor_override",
            lambda x, g=_avg: g(x, 2, divisor_override=3),
            f(*_shape),
        )
        case(
            f"avg_pool{_rank}d/divisor and ceil",
            lambda x, g=_avg: g(x, 3, 2, 1, ceil_mode=True, divisor_override=3),
            f(*_shape),
        )
        case(
            f"avg_pool{_rank}d/uneven kernel",
            lambda x, g=_avg, n=_rank: g(x, (3, 2, 1)[:n], (1, 2, 3)[:n]),
            f(*_shape),
        )
    case(f"max_pool{_rank}d/default", lambda x, g=_max: g(x, 2), f(*_shape))
    case(f"max_pool{_rank}d/padding", lambda x, g=_max: g(x, 3, 2, 1), f(*_shape))
    case(f"max_pool{_rank}d/dilation", lambda x, g=_max: g(x, 2, 1, 0, 2), f(*_shape))
    case(f"max_pool{_rank}d/ceil_mode", lambda x, g=_max: g(x, 3, 2, ceil_mode=True), f(*_shape))
    case(
        f"max_pool{_rank}d/ceil last window left out",
        lambda x, g=_max: g(x, 2, 3, 1, ceil_mode=True),
        f(*_shape),
    )
    case(
        f"max_pool{_rank}d/indices",
        lambda x, g=_max: tuple(g(x, 2, return_indices=True)),
        f(*_shape),
    )
    case(
        f"max_pool{_rank}d/indices padded",
        lambda x, g=_max: tuple(g(x, 3, 2, 1, ceil_mode=True, return_indices=True)),
        f(*_shape),
    )
    case(
        f"max_pool{_rank}d/indices ties",
        lambda x, g=_max: tuple(g(x, 3, 2, 1, return_indices=True)),
        f(*_shape).round(),
    )
    case(f"max_pool{_rank}d/unbatched", lambda x, g=_max: g(x, 2), f(*_shape[1:]))
    case(f"max_pool{_rank}d/f16", lambda x, g=_max: g(x, 3, 2, 1), h(*_shape))
    case(f"max_pool{_rank}d/negative values", lambda x, g=_max: g(x, 3, 2, 1), -pos(*_shape))
    _aavg = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[_rank - 1]
    _amax = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[_rank - 1]
    for _size in (1, 3, 4):
        case(f"adaptive_avg_pool{_rank}d/{_size}", lambda x, g=_aavg, s=_size: g(x, s), f(*_shape))
        case(f"adaptive_max_pool{_rank}d/{_size}", lambda x, g=_amax, s=_size: g(x, s), f(*_shape))
    case(f"adaptive_avg_pool{_rank}d/larger than input", lambda x, g=_aavg: g(x, 12), f(*_shape))
    case(f"adaptive_avg_pool{_rank}d/unbatched", lambda x, g=_aavg: g(x, 2), f(*_shape[1:]))
    case(f"adaptive_avg_pool{_rank}d/f16", lambda x, g=_aavg: g(x, 2), h(*_shape))
    case(f"adaptive_max_pool{_rank}d/unbatched", lambda x, g=_amax: g(x, 2), f(*_shape[1:]))
    case(
        f"adaptive_max_pool{_rank}d/indices",
        lambda x, g=_amax: tuple(g(x, 3, return_indices=True)),
        f(*_shape),
    )
case("adaptive_avg_pool2d/none", lambda x: F.adaptive_avg_pool2d(x, (None, 3)), f(1, 2, 5, 7))
case("max_pool2d/i32", lambda x: F.max_pool2d(x, 3, 2, 1), i(1, 2, 7, 7))
case("lp_pool2d/f32", lambda x: F.lp_pool2d(x, 2, 2), pos(1, 2, 6, 6))

# Convolutions.
for _rank, _shape in ((1, (2, 4, 9)), (2, (2, 4, 7, 8)), (3, (1, 4, 5, 6, 7))):
    _conv = (F.conv1d, F.conv2d, F.conv3d)[_rank - 1]
    _back = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[_rank - 1]
    _k = (3, 2, 3)[:_rank]
    case(f"conv{_rank}d/default", _conv, f(*_shape), f(6, 4, *_k), f(6))
    case(f"conv{_rank}d/no bias", _conv, f(*_shape), f(6, 4, *_k))
    case(
        f"conv{_rank}d/stride padding dilation",
        lambda x, w, c, g=_conv: g(x, w, c, 2, 1, 2),
        f(*_shape),
        f(6, 4, *(2,) * _rank),
        f(6),
    )
    case(
        f"conv{_rank}d/groups",
        lambda x, w, g=_conv: g(x, w, None, 1, 1, 1, 2),
        f(*_shape),
        f(6, 2, *_k),
    )
    case(
        f"conv{_rank}d/depthwise",
        lambda x, w, g=_conv: g(x, w, None, 1, 1, 1, 4),
        f(*_shape),
        f(8, 1, *_k),
    )
    case(
        f"conv{_rank}d/same",
        lambda x, w, g=_conv: g(x, w, None, 1, "same"),
        f(*_shape),
        f(6, 4, *_k),
    )
    case(f"conv{_rank}d/unbatched", _conv, f(*_shape[1:]), f(6, 4, *_k))
    case(f"conv{_rank}d/f16", _conv, h(*_shape), h(6, 4, *_k), h(6))
    case(f"conv_transpose{_rank}d/default", _back, f(*_shape), f(4, 6, *_k), f(6))
    case(
        f"conv_transpose{_rank}d/stride padding",
        lambda x, w, c, g=_back: g(x, w, c, 2, 1),
        f(*_shape),
        f(4, 6, *_k),
        f(6),
    )
    case(
        f"conv_transpose{_rank}d/output_padding",
        lambda x, w, g=_back: g(x, w, None, 2, 1, 1),
        f(*_shape),
        f(4, 6, *_k),
    )
    case(
        f"conv_transpose{_rank}d/output_padding beyond stride",
        lambda x, w, g=_back: g(x, w, None, 1, 0, 1, 1, 2),
        f(*_shape),
        f(4, 6, *_k),
    )
    case(
        f"conv_transpose{_rank}d/groups",
        lambda x, w, g=_back: g(x, w, None, 2, 0, 0, 2),
        f(*_shape),
        f(4, 3, *_k),
    )
    case(
        f"conv_transpose{_rank}d/depthwise",
        lambda x, w, g=_back: g(x, w, None, 2, 1, 0, 4),
        f(*_shape),
        f(4, 1, *_k),
    )
    case(
        f"conv_transpose{_rank}d/dilation",
        lambda x, w, g=_back: g(x, w, None, 3, 2, 1, 1, 2),
        f(*_shape),
        f(4, 6, *_k),
    )
    case(
        f"conv_transpose{_rank}d/large padding",
        lambda x, w, g=_back: g(x, w, None, 1, 3),
        f(*_shape),
        f(4, 6, *_k),
    )
    case(
        f"conv_transpose{_rank}d/f16",
        lambda x, w, g=_back: g(x, w, None, 2),
        h(*_shape),
        h(4, 6, *_k),
    )

# Normalisations.
case("layer_norm/f32", lambda x, w, c: F.layer_norm(x, (4,), w, c), f(2, 3, 4), f(4), f(4))
case(
    "layer_norm/two dims",
    lambda x, w, c: F.layer_norm(x, (3, 4), w, c),
    f(2, 3, 4),
    f(3, 4),
    f(3, 4),
)
case("layer_norm/no affine", lambda x: F.layer_norm(x, (4,)), f(2, 3, 4))
case("layer_norm/weight alone", lambda x, w: F.layer_norm(x, (4,), w), f(2, 3, 4), f(4))
case("layer_norm/eps", lambda x: F.layer_norm(x, (4,), eps=1.0), f(2, 3, 4))
case("layer_norm/f16", lambda x, w, c: F.layer_norm(x, (4,), w, c), h(2, 3, 4) * 100, h(4), h(4))
case(
    "layer_norm/mean and rstd",
    lambda x, w, c: tuple(torch.ops.aten.native_layer_norm(x, (4,), w, c, 1e-5)),
    f(2, 3, 4),
    f(4),
    f(4),
)
case("group_norm/f32", lambda x, w, c: F.group_norm(x, 2, w, c), f(2, 4, 5, 3), f(4), f(4))
case("group_norm/3d", lambda x, w, c: F.group_norm(x, 2, w, c), f(2, 4, 5), f(4), f(4))
case("group_norm/2d", lambda x, w, c: F.group_norm(x, 2, w, c), f(2, 4), f(4), f(4))
case("group_norm/no affine", lambda x: F.group_norm(x, 2), f(2, 4, 5))
case("group_norm/f16", lambda x, w, c: F.group_norm(x, 2, w, c), h(2, 4, 5), h(4), h(4))
case(
    "group_norm/mean and rstd",
    lambda x: tuple(torch.ops.aten.native_group_norm(x, None, None, 2, 4, 5, 2, 1e-5)),
    f(2, 4, 5),
)
case(
    "batch_norm/f32",
    lambda x, m, v, w, c: F.batch_norm(x, m, v, w, c),
    f(2, 3, 4, 5),
    f(3),
    pos(3),
    f(3),
    f(3),
)
case("batch_norm/no affine", lambda x, m, v: F.batch_norm(x, m, v), f(2, 3, 4), f(3), pos(3))
case(
    "batch_norm/2d eps",
    lambda x, m, v, w, c: F.batch_norm(x, m, v, w, c, eps=0.5),
    f(2, 3),
    f(3),
    pos(3),
    f(3),
    f(3),
)
case("batch_norm/5d", lambda x, m, v: F.batch_norm(x, m, v), f(2, 3, 2, 2, 2), f(3), pos(3))
case(
    "batch_norm/f16",
    lambda x, m, v, w, c: F.batch_norm(x, m, v, w, c),
    h(2, 3, 4),
    h(3),
    pos(3).half(),
    h(3),
    h(3),
)
case(
    "batch_norm/all outputs",
    lambda x, m, v: torch.ops.aten._native_batch_norm_legit_no_training(
        x, None, None, m, v, 0.1, 1e-5
    )[0],
    f(2, 3, 4),
    f(3),
    pos(3),
)
case("instance_norm/f32", lambda x: F.instance_norm(x), f(2, 3, 4, 5))
case(
    "instance_norm/affine",
    lambda x, w, c: F.instance_norm(x, None, None, w, c),
    f(2, 3, 7),
    f(3),
    f(3),
)
case(
    "instance_norm/running",
    lambda x, m, v: F.instance_norm(x, m, v, use_input_stats=False),
    f(2, 3, 7),
    f(3),
    pos(3),
)
case(
    "instance_norm/f16",
    lambda x, w, c: F.instance_norm(x, None, None, w, c),
    h(2, 3, 7),
    h(3),
    h(3),
)
case("rms_norm/f32", lambda x, w: F.rms_norm(x, (4,), w), f(2, 3, 4), f(4))
case("local_response_norm/f32", lambda x: F.local_response_norm(x, 2), f(1, 4, 5, 5))
case("normalize/f32", lambda x: F.normalize(x), f(3, 4))
case("cosine_similarity/f32", F.cosine_similarity, f(3, 4), f(3, 4))
case("cdist/f32", torch.cdist, f(3, 4), f(5, 4))

# Attention.
Q, K, V = f(2, 4, 5, 8), f(2, 4, 6, 8), f(2, 4, 6, 8)
_sdpa = F.scaled_dot_product_attention
case("sdpa/f32", _sdpa, Q, K, V)
case("sdpa/causal", lambda q: _sdpa(q, q, q, is_causal=True), Q)
case("sdpa/causal uneven", lambda q, k, v: _sdpa(q, k, v, is_causal=True), Q, K, V)
case("sdpa/causal large scores", lambda q: _sdpa(q, q, q, is_causal=True), Q * 100)
case("sdpa/causal very large scores", lambda q: _sdpa(q, q, q, is_causal=True, scale=1.0), Q * 3000)
case("sdpa/mask f32", lambda q, k, v, m: _sdpa(q, k, v, m), Q, K, V, f(5, 6))
case(
    "sdpa/mask bool",
    lambda q, k, v, m: _sdpa(q, k, v, m),
    Q,
    K,
    V,
    torch.tensor([[True, False] * 3] * 5),
)
case(
    "sdpa/mask bool large scores",
    lambda q, k, v, m: _sdpa(q, k, v, m, scale=1.0),
    Q * 300,
    K * 300,
    V,
    torch.tensor([[True, False] * 3] * 5),
)
case(
    "sdpa/mask bool whole row",
    lambda q, k, v, m: _sdpa(q, k, v, m),
    Q,
    K,
    V,
    torch.tensor([[True] * 6] * 4 + [[False] * 6]),
)
case(
    "sdpa/mask -inf",
    lambda q, k, v, m: _sdpa(q, k, v, m),
    Q,
    K,
    V,
    torch.tensor([[0.0, -INF] * 3] * 5),
)
case(
    "sdpa/mask -inf whole row",
    lambda q, k, v, m: _sdpa(q, k, v, m),
    Q,
    K,
    V,
    torch.tensor([[0.0] * 6] * 4 + [[-INF] * 6]),
)
case("sdpa/mask batched", lambda q, k, v, m: _sdpa(q, k, v, m), Q, K, V, f(2, 1, 5, 6))
case("sdpa/scale", lambda q, k, v: _sdpa(q, k, v, scale=0.3), Q, K, V)
case("sdpa/scale zero", lambda q, k, v: _sdpa(q, k, v, scale=0.0), Q, K, V)
case("sdpa/gqa", lambda q, k, v: _sdpa(q, k, v, enable_gqa=True), Q, f(2, 2, 6, 8), f(2, 2, 6, 8))
case("sdpa/rank 3", _sdpa, f(2, 5, 8), f(2, 6, 8), f(2, 6, 8))
case("sdpa/rank 2", _sdpa, f(5, 8), f(6, 8), f(6, 8))
case("sdpa/rank 5", _sdpa, f(2, 1, 4, 5, 8), f(2, 1, 4, 6, 8), f(2, 1, 4, 6, 8))
case("sdpa/value width", _sdpa, Q, K, f(2, 4, 6, 3))
case("sdpa/broadcast batch", _sdpa, Q, f(1, 4, 6, 8), f(1, 4, 6, 8))
case("sdpa/f16", _sdpa, Q.half(), K.half(), V.half())
case("sdpa/causal f16", lambda q: _sdpa(q, q, q, is_causal=True), Q.half())
case(
    "sdpa/mask rank 3 input",
    lambda q, k, v, m: _sdpa(q, k, v, m),
    f(2, 5, 8),
    f(2, 6, 8),
    f(2, 6, 8),
    f(2, 5, 6),
)

# Resizing.
for _mode in ("bilinear", "nearest", "bicubic", "nearest-exact"):
    _corners = (False, True) if _mode in ("bilinear", "bicubic") else (None,)
    for _align in _corners:
        _suffix = " align_corners" if _align else ""
        for _size in ((10, 14), (3, 4), (5, 7), (8, 5), (1, 1)):
            case(
                f"{_mode}/{_size[0]}x{_size[1]}{_suffix}",
                lambda x, m=_mode, s=_size, a=_align: F.interpolate(x, s, mode=m, align_corners=a),
                f(1, 2, 5, 7),
            )
        case(
            f"{_mode}/scale 2{_suffix}",
            lambda x, m=_mode, a=_align: F.interpolate(x, scale_factor=2, mode=m, align_corners=a),
            f(1, 2, 5, 7),
        )
        case(
            f"{_mode}/scale 1.7{_suffix}",
            lambda x, m=_mode, a=_align: F.interpolate(
                x, scale_factor=1.7, mode=m, align_corners=a
            ),
            f(1, 2, 5, 7),
        )
        case(
            f"{_mode}/scale 0.6{_suffix}",
            lambda x, m=_mode, a=_align: F.interpolate(
                x, scale_factor=0.6, mode=m, align_corners=a
            ),
            f(1, 2, 5, 7),
        )
        case(
            f"{_mode}/recompute{_suffix}",
            lambda x, m=_mode, a=_align: F.interpolate(
                x, scale_factor=1.7, mode=m, align_corners=a, recompute_scale_factor=True
            ),
            f(1, 2, 5, 7),
        )
        case(
            f"{_mode}/from one{_suffix}",
            lambda x, m=_mode, a=_align: F.interpolate(x, (3, 4), mode=m, align_corners=a),
            f(1, 2, 1, 1),
        )
case(
    "bilinear/antialias",
    lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
    f(1, 2, 8, 9),
)
case("bilinear/f16", lambda x: F.interpolate(x, (10, 14), mode="bilinear"), h(1, 2, 5, 7))
case("nearest/f16", lambda x: F.interpolate(x, (10, 13), mode="nearest"), h(1, 2, 5, 7))
case("nearest/1d", lambda x: F.interpolate(x, 9, mode="nearest"), f(1, 2, 5))
case("linear/interpolate", lambda x: F.interpolate(x, 9, mode="linear"), f(1, 2, 5))
case(
    "trilinear/interpolate",
    lambda x: F.interpolate(x, (4, 5, 6), mode="trilinear"),
    f(1, 2, 3, 3, 3),
)
case(
    "grid_sample/f32",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    f(1, 2, 4, 5),
    f(1, 3, 3, 2),
)


# Recurrence.
RECURRENT = {}
for _name, _kind in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU), ("rnn", torch.nn.RNN)):
    for _variant, _options in (
        ("one", {}),
        ("two layers", {"num_layers": 2}),
        ("bidirectional", {"bidirectional": True}),
        ("no bias", {"bias": False}),
    ):
        torch.manual_seed(0)
        RECURRENT[f"{_name}/{_variant}"] = _kind(4, 6, batch_first=True, **_options).eval()


class _First(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


for _name, _layer in RECURRENT.items():
    case(_name, _First(_layer), f(2, 5, 4))
