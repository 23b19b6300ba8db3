"""The variants that the sweep lowers, runs and compares with eager PyTorch; executed inside the subject.

``CASES`` maps a name, ``operator/variant``, to a function and its inputs. A variant that a converter could
get wrong on its own has a case of its own: other dtypes, ranks, empty and zero-dim tensors, dims left out,
negative, several of them, broadcasting, ties, NaN and infinities, non-default arguments.
"""

import torch
import torch.nn.functional as F

CASES = {}
_generator = torch.Generator().manual_seed(0)


def f(*shape):
    return torch.randn(shape, generator=_generator)


def pos(*shape):
    return torch.rand(shape, generator=_generator) + 0.1


def h(*shape):
    return f(*shape).half()


def i(*shape, low=-9, high=10):
    return torch.randint(low, high, shape, generator=_generator, dtype=torch.int32)


def nz(*shape):
    values = i(*shape)
    return torch.where(values == 0, 3, values)


def b(*shape):
    return torch.rand(shape, generator=_generator) > 0.5


def u(*shape):
    return i(*shape, low=0, high=200).to(torch.uint8)


NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([[NAN, INF, -INF, 0.0], [-0.0, 1.5, -2.5, 0.5]])
HALVES = torch.tensor([-3.5, -2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 3.5, 1e20, -1e20])
TIES = torch.tensor([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [0.0, -1.0, 0.0, -1.0]])


def case(name, function, *inputs):
    assert name not in CASES, name
    CASES[name] = (function, inputs)


# Elementwise, one operand.
UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "relu": torch.relu,
    "square": torch.square,
    "logical_not": torch.logical_not,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "erf": torch.erf,
}
for _name, _function in UNARY.items():
    case(f"{_name}/f32", _function, f(3, 5))
    case(f"{_name}/f16", _function, h(3, 5))
    case(f"{_name}/special", _function, SPECIAL)
    case(f"{_name}/i32", _function, i(3, 5))
    case(f"{_name}/zero-dim", _function, f())
for _name, _function in {
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "reciprocal": torch.reciprocal,
}.items():
    case(f"{_name}/f32", _function, pos(3, 5))
    case(f"{_name}/f16", _function, pos(3, 5).half())
    case(f"{_name}/special", _function, SPECIAL)
    case(f"{_name}/i32", _function, i(3, 5, low=1))
for _name, _function in {"acos": torch.acos, "asin": torch.asin, "atanh": torch.atanh}.items():
    case(f"{_name}/f32", _function, pos(3, 5) - 0.6)
    case(f"{_name}/special", _function, SPECIAL)
    case(f"{_name}/i32", _function, i(3, 5, low=-1, high=2))
case("acosh/f32", torch.acosh, pos(3, 5) + 1)
case("acosh/special", torch.acosh, SPECIAL)
for _name in ("floor", "ceil", "trunc", "round"):
    case(f"{_name}/halves", UNARY[_name], HALVES)
    case(f"{_name}/f16 halves", UNARY[_name], HALVES[:9].half())
case("expm1/small", torch.expm1, f(3, 5) * 1e-6)
case("log1p/small", torch.log1p, f(3, 5) * 1e-6)
case("abs/u8", torch.abs, u(4))
case("neg/u8", torch.neg, u(4))
case(
    "bitwise_not/i32",
    torch.bitwise_not,
    torch.tensor([0, -1, 7, 2**30 + 1, -(2**31), 2**24 + 1], dtype=torch.int32),
)
case("eq/u8 with 300", lambda x: x == 300, torch.tensor([44, 1, 255], dtype=torch.uint8))
case("clamp/u8 negative", lambda x: torch.clamp(x, -3), u(4))
case("any/over no dims", lambda x: torch.any(x, ()), b(2, 3))
case("any/u8 over no dims", lambda x: torch.any(x, ()), u(2, 3))
case("all/over no dims", lambda x: torch.all(x, ()), f(2, 3))
for _name, _function in {"argmin": torch.argmin, "min": torch.min, "argmax": torch.argmax}.items():
    case(f"{_name}/u8 dim", lambda x, g=_function: g(x, 1), u(3, 5))
case("sort/bool", lambda x: torch.sort(x, 1), torch.tensor([[True, False], [False, True]]))
case("pow/i32 beyond", lambda x: torch.pow(x, 9), i(9) * 1000)
case("pow/scalar base beyond", lambda x: torch.pow(3, x), i(9, low=0, high=30))
case(
    "pow/i32 negative exponents",
    torch.pow,
    torch.tensor([1, -1, -1, 2, -3], dtype=torch.int32),
    torch.tensor([-2, -2, -3, -2, -1], dtype=torch.int32),
)
case("bitwise_not/bool", torch.bitwise_not, b(5))
case("bitwise_not/u8", torch.bitwise_not, u(5))
case("logical_not/bool", torch.logical_not, b(5))
case("round/decimals 2", lambda x: torch.round(x, decimals=2), f(3, 5))
case("round/decimals -1", lambda x: torch.round(x, decimals=-1), f(3, 5) * 100)
case("gelu/none", F.gelu, f(3, 5))
case("gelu/tanh", lambda x: F.gelu(x, approximate="tanh"), f(3, 5))
case("silu/special", F.silu, SPECIAL)
case("silu/f16", F.silu, h(3, 5))
case("hardsigmoid/f32", F.hardsigmoid, f(3, 5) * 4)
case("hardswish/f32", F.hardswish, f(3, 5) * 4)
case("hardswish/special", F.hardswish, SPECIAL)
case("leaky_relu/slope", lambda x: F.leaky_relu(x, 0.3), f(3, 5))
case("leaky_relu/slope above one", lambda x: F.leaky_relu(x, 2.0), f(3, 5))
case("leaky_relu/special", F.leaky_relu, SPECIAL)
case("hardtanh/default", F.hardtanh, f(3, 5) * 2)
case("hardtanh/bounds", lambda x: F.hardtanh(x, -0.3, 0.7), f(3, 5))
case("hardtanh/i32", lambda x: F.hardtanh(x, -3, 4), i(3, 5))
case("relu6/f32", F.relu6, f(3, 5) * 6)
case("elu/f32", F.elu, f(3, 5))
case("softplus/f32", F.softplus, f(3, 5))
case("mish/f32", F.mish, f(3, 5))
case("prelu/f32", lambda x, w: F.prelu(x, w), f(2, 3, 4), f(3))
case("threshold/f32", lambda x: F.threshold(x, 0.2, -3.0), f(3, 5))
case("glu/f32", F.glu, f(3, 6))

# Elementwise, two operands.
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_divide": torch.floor_divide,
    "div floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "where": lambda x, y: torch.where(x > y, x, y),
    "atan2": torch.atan2,
}
for _name, _function in BINARY.items():
    case(f"{_name}/f32", _function, f(3, 5) * 5, f(3, 5))
    case(f"{_name}/f16", _function, h(3, 5), h(3, 5))
    case(f"{_name}/broadcast", _function, f(3, 1, 5), f(4, 1))
    case(f"{_name}/i32", _function, i(3, 5), nz(3, 5))
    case(f"{_name}/f32 with i32", _function, f(3, 5), nz(3, 5))
    case(f"{_name}/i32 with f32", _function, i(3, 5), f(3, 5))
    case(f"{_name}/f16 with f32", _function, h(3, 5), f(3, 5))
    case(f"{_name}/i32 with f16", _function, i(3, 5), h(3, 5))
    case(f"{_name}/special", _function, SPECIAL.reshape(-1, 1), SPECIAL.reshape(1, -1))
    case(f"{_name}/zero-dim", _function, f(), f())
    case(f"{_name}/scalar", lambda x, g=_function: g(x, torch.tensor(2.5)), f(3, 5))
    case(f"{_name}/same", lambda x, g=_function: g(x, x), f(3, 5))
    case(f"{_name}/empty", _function, f(0, 5), f(0, 5))
case("add/bool", torch.add, b(5), b(5))
case("mul/bool", torch.mul, b(5), b(5))
case("mul/bool with f32", torch.mul, b(5), f(5))
case("maximum/bool", torch.maximum, b(5), b(5))
case("lt/bool", torch.lt, b(5), b(5))
case("eq/bool", torch.eq, b(5), b(5))
case("div/by zero", torch.div, f(4), torch.tensor([0.0, -0.0, 1.0, 2.0]))
case("div/bool", torch.div, b(5), torch.tensor([True] * 5))
case(
    "add/u8 wraps",
    torch.add,
    torch.tensor([250, 3], dtype=torch.uint8),
    torch.tensor([10, 3], dtype=torch.uint8),
)
case(
    "add/i32 wraps",
    torch.add,
    torch.tensor([2**31 - 1], dtype=torch.int32),
    torch.tensor([1], dtype=torch.int32),
)
case(
    "mul/i32 large",
    torch.mul,
    torch.tensor([2**24 + 1, 46341], dtype=torch.int32),
    torch.tensor([3, 46340], dtype=torch.int32),
)
case(
    "add/i32 large",
    torch.add,
    torch.tensor([2**30 + 1], dtype=torch.int32),
    torch.tensor([2**29 + 1], dtype=torch.int32),
)
case(
    "floor_divide/i32 large",
    torch.floor_divide,
    torch.tensor([2**31 - 1, -(2**31) + 1], dtype=torch.int32),
    torch.tensor([2, 3], dtype=torch.int32),
)
case(
    "remainder/i32 large",
    torch.remainder,
    torch.tensor([2**31 - 1, -(2**31) + 1], dtype=torch.int32),
    torch.tensor([2, 7], dtype=torch.int32),
)
case(
    "eq/i32 large",
    torch.eq,
    torch.tensor([2**30 + 1], dtype=torch.int32),
    torch.tensor([2**30], dtype=torch.int32),
)
case(
    "maximum/i32 large",
    torch.maximum,
    torch.tensor([2**30 + 1], dtype=torch.int32),
    torch.tensor([2**30], dtype=torch.int32),
)
case(
    "remainder/negative",
    torch.remainder,
    torch.tensor([5.5, -5.5, 5.5, -5.5]),
    torch.tensor([2.0, 2.0, -2.0, -2.0]),
)
case(
    "fmod/negative",
    torch.fmod,
    torch.tensor([5.5, -5.5, 5.5, -5.5]),
    torch.tensor([2.0, 2.0, -2.0, -2.0]),
)
case("fmod/scalar i32", lambda x: torch.fmod(x, 3), i(9))
case("remainder/scalar i32", lambda x: torch.remainder(x, 3), i(9))
case("remainder/scalar f32", lambda x: torch.remainder(x, 1.5), f(9) * 5)
case("div/scalar i32", lambda x: x / 4, i(9))
case("mul/scalar float on i32", lambda x: x * 1.5, i(9))
case("add/scalar i32", lambda x: x + 3, i(9))
case("sub/rsub", lambda x: 3 - x, f(9))
case("eq/scalar float on i32", lambda x: x == 1.5, i(9))
case("gt/scalar float on i32", lambda x: x > 1.5, i(9))
case("ge/scalar rhs", lambda x: x >= 0.5, f(9))
case("add/alpha", lambda x, y: torch.add(x, y, alpha=2.5), f(3, 5), f(3, 5))
case("add/alpha i32", lambda x, y: torch.add(x, y, alpha=3), i(3, 5), i(3, 5))
case("sub/alpha", lambda x, y: torch.sub(x, y, alpha=-2), f(3, 5), f(5))
case("add/alpha f16", lambda x, y: torch.add(x, y, alpha=0.1), h(3, 5), h(5))
case("add/alpha f32 with i32", lambda x, y: torch.add(x, y, alpha=2.5), f(3, 5), i(3, 5))
case("add/alpha i32 with f32", lambda x, y: torch.add(x, y, alpha=2.5), i(3, 5), f(3, 5))
case("add/alpha scalar", lambda x: torch.add(x, 3, alpha=2), f(3, 5))
for _power in (2, 3, 0.5, -1, 0, -2.5):
    case(f"pow/{_power}", lambda x, p=_power: torch.pow(x, p), pos(3, 5))
case("pow/negative base 2", lambda x: torch.pow(x, 2), f(3, 5))
case("pow/negative base 3", lambda x: torch.pow(x, 3), f(3, 5))
case("pow/negative base 0.5", lambda x: torch.pow(x, 0.5), f(3, 5))
case("pow/tensor", torch.pow, f(3, 5), i(3, 5, low=0, high=4).float())
case("pow/i32", lambda x: torch.pow(x, 3), i(3, 5))
case("pow/i32 tensor", torch.pow, i(9, low=-3, high=4), i(9, low=0, high=4))
case(
    "pow/i32 large", lambda x: torch.pow(x, 3), torch.tensor([1000, 1001, -999], dtype=torch.int32)
)
case("pow/scalar base", lambda x: torch.pow(2.5, x), f(3, 5))
case("pow/scalar base int", lambda x: torch.pow(2, x), i(9, low=0, high=6))
case("pow/zero", lambda x: torch.pow(x, 0.0), SPECIAL)
case("pow/special 2", lambda x: torch.pow(x, 2.0), SPECIAL)
case("pow/special 3", lambda x: torch.pow(x, 3.0), SPECIAL)
case("pow/special -1", lambda x: torch.pow(x, -1.0), SPECIAL)
case("pow/i32 with f32", lambda x: torch.pow(x, 0.5), i(9, low=0))
for _name, _function in {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}.items():
    case(f"bitwise_{_name}/i32", _function, i(9), i(9))
    case(f"bitwise_{_name}/bool", _function, b(9), b(9))
    case(f"bitwise_{_name}/u8", _function, u(9), u(9))
    case(f"bitwise_{_name}/i32 with bool", _function, i(9), b(9))
case("logical_and/bools", torch.logical_and, b(9), b(9))
case("logical_xor/zeros", torch.logical_xor, i(9, low=0, high=2).float(), i(9, low=0, high=2))
case("clamp/both", lambda x: torch.clamp(x, -0.5, 0.5), f(3, 5))
case("clamp/min", lambda x: torch.clamp(x, min=0.1), f(3, 5))
case("clamp/max", lambda x: torch.clamp(x, max=0.1), f(3, 5))
case("clamp/special", lambda x: torch.clamp(x, -1.0, 1.0), SPECIAL)
case("clamp/i32", lambda x: torch.clamp(x, -3, 3), i(9))
case("clamp/i32 by float", lambda x: torch.clamp(x, -2.5, 2.5), i(9))
case("clamp/min above max", lambda x: torch.clamp(x, 1.0, -1.0), f(9))
case("clamp/tensor", torch.clamp, f(3, 5), f(5) - 1, f(5) + 1)
case("clamp/tensor min", lambda x, y: torch.clamp(x, min=y), f(3, 5), f(3, 1))
case("clamp/i32 by f32 tensor", lambda x, y: torch.clamp(x, min=y), i(3, 5), f(5))
case(
    "clamp/i32 large",
    lambda x: torch.clamp(x, -(2**31) + 7, 2**31 - 8),
    torch.tensor([2**31 - 1, -(2**31), 5], dtype=torch.int32),
)
case("where/scalar again", lambda c, x: torch.where(c, x, 0.0), b(3, 5), f(3, 5))
case("where/broadcast again", torch.where, b(3, 1), f(5), f(3, 5))
case("where/mixed", torch.where, b(3, 5), i(3, 5), f(3, 5))
case("where/zero-dim condition", torch.where, torch.tensor(True), f(3), f(3))
case("masked_fill/f32", lambda x, m: x.masked_fill(m, -INF), f(3, 5), b(3, 5))
case("masked_scatter/f32", torch.masked_scatter, f(3, 5), b(3, 5), f(3, 5))
case("lerp/f32", torch.lerp, f(3, 5), f(3, 5), f(3, 5))
case("addcmul/f32", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), f(3), f(3), f(3))

# Reductions.
REDUCE = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "prod": torch.prod,
    "any": torch.any,
    "all": torch.all,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "max": lambda *a, **k: torch.max(*a, **k),
    "min": lambda *a, **k: torch.min(*a, **k),
    "logsumexp": torch.logsumexp,
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "cumsum": torch.cumsum,
    "var": torch.var,
    "std": torch.std,
    "median": torch.median,
}
_WHOLE = {
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "any",
    "all",
    "argmax",
    "argmin",
    "max",
    "min",
    "var",
    "std",
    "median",
}
_MANY = {"sum", "mean", "amax", "amin", "any", "all", "var", "std", "logsumexp"}
_FLAT = {"softmax", "log_softmax", "cumsum"}


def _plain(result):
    return tuple(result) if isinstance(result, tuple) else result


for _name, _function in REDUCE.items():
    if _name in _WHOLE:
        case(f"{_name}/whole", lambda x, g=_function: g(x), f(3, 4, 5))
        case(f"{_name}/whole zero-dim", lambda x, g=_function: g(x), f())
        if _name not in ("var", "std", "mean"):
            case(f"{_name}/whole i32", lambda x, g=_function: g(x), i(3, 4))
        case(f"{_name}/whole special", lambda x, g=_function: g(x), SPECIAL)
    case(f"{_name}/dim", lambda x, g=_function: _plain(g(x, 1)), f(3, 4, 5))
    case(f"{_name}/dim negative", lambda x, g=_function: _plain(g(x, -2)), f(3, 4, 5))
    case(f"{_name}/dim f16", lambda x, g=_function: _plain(g(x, -1)), h(3, 4, 5))
    case(f"{_name}/dim special", lambda x, g=_function: _plain(g(x, 1)), SPECIAL)
    case(f"{_name}/dim ties", lambda x, g=_function: _plain(g(x, 1)), TIES)
    if _name not in ("var", "std", "mean", "softmax", "log_softmax", "logsumexp"):
        case(f"{_name}/dim i32", lambda x, g=_function: _plain(g(x, 1)), i(3, 4))
    if _name not in _FLAT:
        case(f"{_name}/keepdim", lambda x, g=_function: _plain(g(x, 1, keepdim=True)), f(3, 4, 5))
    if _name in _MANY:
        case(f"{_name}/dims", lambda x, g=_function: g(x, (0, -1)), f(3, 4, 5))
        case(
            f"{_name}/dims reversed keepdim",
            lambda x, g=_function: g(x, (2, 0), keepdim=True),
            f(3, 4, 5),
        )
    if _name in ("sum", "mean", "amax", "amin"):
        case(f"{_name}/dims empty", lambda x, g=_function: g(x, ()), f(3, 4))
        case(f"{_name}/keepdim all", lambda x, g=_function: g(x, (0, 1), keepdim=True), f(3, 4))
    if _name in ("sum", "any", "all", "prod", "cumsum"):
        case(f"{_name}/bool", lambda x, g=_function: g(x, 1), b(3, 4))
for _name in ("sum", "prod", "mean", "cumsum"):
    _dims = {"sum": 1, "prod": 1, "mean": 1, "cumsum": 1}[_name]
    case(f"{_name}/dtype", lambda x, g=REDUCE[_name]: g(x, 1, dtype=torch.float32), i(3, 4))
    case(f"{_name}/dtype f16", lambda x, g=REDUCE[_name]: g(x, 1, dtype=torch.float16), f(3, 4))
    case(f"{_name}/dtype up", lambda x, g=REDUCE[_name]: g(x, 1, dtype=torch.float32), h(3, 4))
case("sum/dtype i32", lambda x: torch.sum(x, 1, dtype=torch.int32), i(3, 4))
case("sum/dtype i32 of f32", lambda x: torch.sum(x, 1, dtype=torch.int32), f(3, 4) * 3)
case("sum/dtype i32 of bool", lambda x: torch.sum(x, 1, dtype=torch.int32), b(3, 4))
case("cumsum/dtype i32", lambda x: torch.cumsum(x, 1, dtype=torch.int32), i(3, 4))
case("prod/dtype i32", lambda x: torch.prod(x, 1, dtype=torch.int32), i(3, 4, low=-3, high=4))
case("sum/empty", lambda x: torch.sum(x, 1), f(3, 0))
case("sum/f16 large", lambda x: torch.sum(x, 1), torch.full((2, 3000), 1.0).half())
case("mean/f16 large", lambda x: torch.mean(x, 1), torch.full((2, 3000), 40.0).half())
case("any/u8", lambda x: torch.any(x, 1), u(3, 4))
case("max/pair keepdim", lambda x: _plain(torch.max(x, 0, keepdim=True)), f(3, 4))
case(
    "min/pair i32 extremes",
    lambda x: _plain(torch.min(x, 0)),
    torch.tensor([[-(2**31), 5], [3, 2**31 - 1]], dtype=torch.int32),
)
case("argmax/keepdim none", lambda x: torch.argmax(x, keepdim=True), f(3, 4))
case("amax/bool", lambda x: torch.amax(x, 1), b(3, 4))
case("max/bool dim", lambda x: torch.max(x, 1)[0], b(3, 4))
case("softmax/large", lambda x: torch.softmax(x, -1), f(3, 4) * 1000)
case("softmax/-inf", lambda x: torch.softmax(x, -1), torch.tensor([[-INF, 1.0], [0.0, -INF]]))
case("log_softmax/large", lambda x: torch.log_softmax(x, -1), f(3, 4) * 1000)
case("softmax/dtype", lambda x: torch.softmax(x, -1, dtype=torch.float32), h(3, 4))
case("cumsum/long", lambda x: torch.cumsum(x, 0), f(257, 3))
for _ord in (0, 1, 2, 3, 0.5, INF, -INF, -1):
    case(f"vector_norm/{_ord}", lambda x, o=_ord: torch.linalg.vector_norm(x, o, 1), f(3, 4))
case("vector_norm/default", lambda x: torch.linalg.vector_norm(x), f(3, 4))
case(
    "vector_norm/dims keepdim",
    lambda x: torch.linalg.vector_norm(x, 2, (0, 2), keepdim=True),
    f(3, 4, 5),
)
case("vector_norm/dims negative", lambda x: torch.linalg.vector_norm(x, 2, (-1, -2)), f(3, 4, 5))
case("vector_norm/f16", lambda x: torch.linalg.vector_norm(x, 2, 1), h(3, 400) * 10)
case("vector_norm/dtype", lambda x: torch.linalg.vector_norm(x, 2, 1, dtype=torch.float32), h(3, 4))
for _largest in (True, False):
    case(
        f"topk/largest {_largest}",
        lambda x, g=_largest: tuple(torch.topk(x, 2, largest=g)),
        f(3, 5),
    )
    case(
        f"topk/dim 0 largest {_largest}",
        lambda x, g=_largest: tuple(torch.topk(x, 2, 0, largest=g)),
        f(5, 3),
    )
case("topk/values special", lambda x: torch.topk(x, 3)[0], SPECIAL)
case("topk/i32", lambda x: torch.topk(x, 2)[0], i(3, 5))
case("topk/f16", lambda x: torch.topk(x, 2)[0], h(3, 5))
case("topk/k equals size", lambda x: tuple(torch.topk(x, 5)), f(3, 5))
case("topk/unsorted set", lambda x: torch.topk(x, 3, sorted=False)[0].sum(-1), f(3, 5))
case("sort/f32", lambda x: tuple(torch.sort(x)), f(3, 5))

# Shapes and views.
case("view/f32", lambda x: x.view(2, 6), f(3, 4))
case("view/-1", lambda x: x.view(-1, 2), f(3, 4))
case("view/to zero-dim", lambda x: x.view(()), f(1, 1))
case("view/from zero-dim", lambda x: x.view(1, 1), f())
case("view/empty", lambda x: x.view(3, 0), f(0, 3))
case("permute/negative", lambda x: x.permute(-1, 0, -2), f(2, 3, 4))
case("permute/bool", lambda x: x.permute(1, 0), b(3, 4))
case("permute/zero-dim", lambda x: x.permute(()), f())
case("transpose/f32", lambda x: x.transpose(-1, 0), f(2, 3, 4))
case("permute/rank 6", lambda x: x.permute(5, 0, 4, 1, 3, 2), f(1, 2, 3, 2, 2, 2))
case("expand/f32", lambda x: x.expand(3, 4), f(3, 1))
case("expand/new dims", lambda x: x.expand(2, -1, 4), f(3, 1))
case("expand/zero-dim", lambda x: x.expand(2, 3), f())
case("expand/bool", lambda x: x.expand(2, 3), b(3))
case("squeeze/all", lambda x: x.squeeze(), f(1, 3, 1))
case("squeeze/dim", lambda x: x.squeeze(1), f(3, 1, 4))
case("squeeze/not one", lambda x: x.squeeze(0) + 1, f(3, 1))
case("squeeze/dims some one", lambda x: x.squeeze((0, -1)), f(1, 4, 3))
case("unsqueeze/negative", lambda x: x.unsqueeze(-1), f(3, 4))
case("unsqueeze/-2", lambda x: x.unsqueeze(-2), f(3, 4))
case("unsqueeze/zero-dim", lambda x: x.unsqueeze(0), f())
case("slice/step", lambda x: x[:, 1:9:3], f(2, 10))
case("slice/negative", lambda x: x[:, -4:-1], f(2, 10))
case("slice/beyond", lambda x: x[:, 3:100], f(2, 10))
case("slice/far negative start", lambda x: x[:, -100:3], f(2, 10))
case("slice/empty", lambda x: x[:, 5:2], f(2, 10))
case("slice/i32", lambda x: x[1:], i(4, 3))
case("select/negative", lambda x: x[:, -2], f(2, 5, 3))
case("select/bool", lambda x: x[1], b(3, 4))
case("select/to zero-dim", lambda x: x[1], f(3))
case("narrow/f32", lambda x: x.narrow(1, 2, 3), f(2, 10))
case("split/sizes", lambda x: tuple(torch.split(x, [2, 3, 5], 1)), f(2, 10))
case("split/uneven", lambda x: tuple(torch.split(x, 4, -1)), f(2, 10))
case("split/single", lambda x: tuple(torch.split(x, 10, 1)), f(2, 10))
case("chunk/f32", lambda x: tuple(torch.chunk(x, 3, 0)), f(7, 2))
case("unbind/f32", lambda x: tuple(torch.unbind(x, 1)), f(3, 2))
case("cat/f32", lambda x, y: torch.cat([x, y], 1), f(2, 3), f(2, 4))
case("cat/negative", lambda x, y: torch.cat([x, y], -2), f(2, 3), f(4, 3))
case("cat/mixed dtypes", lambda x, y: torch.cat([x, y]), f(3), i(3))
case("cat/with empty", lambda x, y: torch.cat([x, y]), f(0), f(3))
case("cat/all empty", lambda x, y: torch.cat([x, y], 1), f(2, 0), f(2, 0))
case("cat/one", lambda x: torch.cat([x]), f(3))
case("cat/bool", lambda x, y: torch.cat([x, y]), b(3), b(2))
case("cat/same", lambda x: torch.cat([x, x]), f(3))
case("stack/f32", lambda x, y: torch.stack([x, y], -1), f(2, 3), f(2, 3))
case("repeat/f32", lambda x: x.repeat(2, 3), f(2, 3))
case("repeat/more dims", lambda x: x.repeat(2, 1, 3), f(2, 3))
case("repeat/zero", lambda x: x.repeat(0, 2), f(2, 3))
case("repeat/bool", lambda x: x.repeat(2), b(3))
case("tile/fewer dims", lambda x: x.tile(2), f(2, 3))
case("repeat_interleave/f32", lambda x: x.repeat_interleave(2, 1), f(2, 3))
case("flip/f32", lambda x: x.flip(0, -1), f(2, 3))
case("flip/one", lambda x: x.flip(1), f(2, 3))
case("flip/none", lambda x: x.flip(()), f(2, 3))
case("flip/bool", lambda x: x.flip(0), b(3))
case("roll/f32", lambda x: x.roll(2, 1), f(2, 5))
case("pad/constant", lambda x: F.pad(x, (1, 2), value=3.5), f(2, 3))
case("pad/2d", lambda x: F.pad(x, (1, 0, 2, 1)), f(2, 3, 4))
case("pad/negative", lambda x: F.pad(x, (-1, 2)), f(2, 5))
case("pad/negative both", lambda x: F.pad(x, (-1, -2)), f(2, 5))
case("pad/i32", lambda x: F.pad(x, (1, 1), value=7), i(2, 3))
case("pad/bool", lambda x: F.pad(x, (1, 1), value=True), b(2, 3))
case("pad/f16", lambda x: F.pad(x, (1, 1), value=-INF), h(2, 3))
case("pad/reflect 1d", lambda x: F.pad(x, (2, 1), mode="reflect"), f(1, 2, 5))
case("pad/reflect 2d", lambda x: F.pad(x, (2, 1, 1, 0), mode="reflect"), f(1, 2, 4, 5))
case("pad/reflect 3d", lambda x: F.pad(x, (1, 1, 1, 0, 1, 1), mode="reflect"), f(1, 2, 3, 4, 5))
case("pad/reflect unbatched", lambda x: F.pad(x, (2, 1), mode="reflect"), f(2, 5))
case("pad/replicate 1d", lambda x: F.pad(x, (7, 1), mode="replicate"), f(1, 2, 5))
case("pad/replicate 2d", lambda x: F.pad(x, (2, 1, 1, 0), mode="replicate"), f(1, 2, 4, 5))
case("pad/replicate 3d", lambda x: F.pad(x, (2, 1, 1, 0, 1, 1), mode="replicate"), f(1, 2, 3, 4, 5))
case("pad/replicate negative", lambda x: F.pad(x, (-1, 1), mode="replicate"), f(1, 2, 5))
case("pad/circular", lambda x: F.pad(x, (2, 1), mode="circular"), f(1, 2, 5))
case("pixel_shuffle/f32", lambda x: F.pixel_shuffle(x, 2), f(1, 8, 3, 3))
case("pixel_shuffle/unbatched", lambda x: F.pixel_shuffle(x, 2), f(8, 3, 3))
case("pixel_unshuffle/f32", lambda x: F.pixel_unshuffle(x, 2), f(1, 2, 6, 6))
case("slice_scatter/step", lambda x, y: torch.slice_scatter(x, y, 1, 1, 9, 3), f(2, 10), f(2, 3))
case("slice_scatter/negative", lambda x, y: torch.slice_scatter(x, y, 1, -4, -1), f(2, 10), f(2, 3))
case("select_scatter/f32", lambda x, y: torch.select_scatter(x, y, 0, 1), f(3, 2), f(2))
case("copy/broadcast", lambda x, y: torch.ops.aten.copy(x, y), f(2, 3), f(3))
case("copy/dtype", lambda x, y: torch.ops.aten.copy(x, y), f(2, 3), i(2, 3))
case("tril/f32", lambda x: torch.tril(x), f(4, 4))
case("triu/diagonal", lambda x: torch.triu(x, 1), f(4, 5))
case("diagonal/f32", lambda x: torch.diagonal(x), f(4, 5))
case("unfold/f32", lambda x: x.unfold(1, 3, 2), f(2, 9))
case("meshgrid/f32", lambda x, y: tuple(torch.meshgrid(x, y, indexing="ij")), f(3), f(2))

# Creation and casts.
case("full_like/f32", lambda x: torch.full_like(x, 2.5) + x, f(2, 3))
case("full_like/dtype", lambda x: torch.full_like(x, 2, dtype=torch.int32), f(2, 3))
case("full_like/i32", lambda x: torch.full_like(x, 7) + x, i(2, 3))
case("full_like/bool", lambda x: torch.full_like(x, True, dtype=torch.bool), f(2, 3))
case("zeros_like/f32", lambda x: torch.zeros_like(x) + x, f(2, 3))
case("full_like/zero-dim", lambda x: torch.full_like(x, 2.0) + x, f())
case("full/f32", lambda x: torch.full((2, 3), 1.5) + x, f(2, 3))
case("full/inf", lambda x: torch.full((3,), -INF) + x, f(3))
case("arange/i32", lambda x: torch.arange(5, dtype=torch.int32) + x, i(5))
case("arange/f32", lambda x: torch.arange(0, 5, 1, dtype=torch.float32) + x, f(5))
case("arange/float step", lambda x: torch.arange(0.5, 2.0, 0.3) + x, f(5))
case("arange/negative step", lambda x: torch.arange(5, 0, -1, dtype=torch.int32) + x, i(5))
case("linspace/f32", lambda x: torch.linspace(0, 1, 5) + x, f(5))
case("scalar_tensor/f32", lambda x: torch.scalar_tensor(2.5) + x, f(3))
for _source, _make in {
    "f32": lambda: f(3, 5) * 3,
    "f16": lambda: h(3, 5) * 3,
    "i32": lambda: i(3, 5),
    "bool": lambda: b(3, 5),
    "u8": lambda: u(3, 5),
    "i8": lambda: i(3, 5).to(torch.int8),
    "i16": lambda: i(3, 5).to(torch.int16),
}.items():
    for _dtype in (
        torch.float32,
        torch.float16,
        torch.int32,
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
    ):
        if _source == "f32" and _dtype in (torch.uint8,):
            continue  # undefined for negative values
        if _source == "f16" and _dtype in (torch.uint8,):
            continue
        case(f"to/{_source} to {str(_dtype)[6:]}", lambda x, d=_dtype: x.to(d), _make())
case(
    "to/f32 to i32 truncates",
    lambda x: x.to(torch.int32),
    torch.tensor([-1.9, -0.5, 0.5, 1.9, 2.5]),
)
case(
    "to/f32 to bool again",
    lambda x: x.to(torch.bool),
    torch.tensor([0.0, -0.0, 0.5, -0.1, NAN, INF, 1e-30]),
)
case(
    "to/i32 to f32 large",
    lambda x: x.to(torch.float32),
    torch.tensor([2**24 + 1, 2**31 - 1], dtype=torch.int32),
)
case(
    "to/f32 to f16 overflow",
    lambda x: x.to(torch.float16),
    torch.tensor([1e6, -1e6, 65504.0, 1e-8]),
)
case(
    "to/i32 to u8 wraps",
    lambda x: x.to(torch.uint8),
    torch.tensor([-1, 256, 300], dtype=torch.int32),
)
case(
    "to/i32 to i8 wraps",
    lambda x: x.to(torch.int8),
    torch.tensor([-129, 128, 300], dtype=torch.int32),
)
case("clone/f32", lambda x: x.clone() + 1, f(3))
case("bf16/add", lambda x: x + 1, f(3).bfloat16())
case("i8/add", lambda x: x + x, i(9).to(torch.int8))
case("i16/mul", lambda x: x * x, i(9).to(torch.int16))
case("u8/add", lambda x: x + x, u(9))
case("f64/add", lambda x: x + x, f(9).double())
case("i64/add", lambda x: x + 1, torch.arange(5))
case("isnan via ne/f32", lambda x: x != x, SPECIAL)
case("nan_to_num/f32", lambda x: torch.nan_to_num(x), SPECIAL)

# Indexing.
IDX = torch.tensor([2, 0, 1], dtype=torch.int64)
for _kind, _dtype in (("i64", torch.int64), ("i32", torch.int32)):
    idx = IDX.to(_dtype)
    case(f"index/{_kind}", lambda x, j: x[j], f(4, 3), idx)
    case(f"index/negative {_kind}", lambda x, j: x[j], f(4, 3), idx - 2)
    case(f"index/second dim {_kind}", lambda x, j: x[:, j], f(4, 3), idx)
    case(f"index/two {_kind}", lambda x, j: x[j, j], f(4, 3), idx)
    case(f"index/two broadcast {_kind}", lambda x, j: x[j.view(3, 1), j], f(4, 3), idx)
    case(f"index/apart {_kind}", lambda x, j: x[j, :, j], f(4, 2, 3), idx)
    case(f"index/middle {_kind}", lambda x, j: x[:, j, j], f(2, 4, 3), idx)
    case(f"index/2d {_kind}", lambda x, j: x[j.view(3, 1)], f(4, 3), idx)
    case(f"index_select/{_kind}", lambda x, j: torch.index_select(x, 1, j), f(2, 4), idx)
    case(
        f"index_select/negative dim {_kind}",
        lambda x, j: torch.index_select(x, -1, j),
        f(2, 4),
        idx,
    )
    case(f"embedding/{_kind}", lambda w, j: F.embedding(j, w), f(4, 3), idx)
    case(f"embedding/2d {_kind}", lambda w, j: F.embedding(j.view(1, 3), w), f(4, 3), idx)
    case(
        f"embedding/padding_idx {_kind}",
        lambda w, j: F.embedding(j, w, padding_idx=0),
        f(4, 3),
        idx,
    )
case(
    "gather/f32",
    lambda x, j: torch.gather(x, 1, j),
    f(3, 4),
    torch.tensor([[0, 3], [1, 1], [2, 0]]),
)
case("gather/dim 0", lambda x, j: torch.gather(x, 0, j), f(3, 4), torch.tensor([[0, 2, 1]]))
case("gather/smaller", lambda x, j: torch.gather(x, 1, j), f(3, 4), torch.tensor([[0, 3]]))
case(
    "gather/negative dim",
    lambda x, j: torch.gather(x, -1, j),
    f(3, 4),
    torch.tensor([[0, 3], [1, 1], [2, 0]]),
)
case(
    "take_along_dim/f32",
    lambda x, j: torch.take_along_dim(x, j, 1),
    f(3, 4),
    torch.tensor([[0], [1], [2]]),
)
case("index/bool mask sum", lambda x, m: x[m].sum(), f(3, 4), b(3, 4))


def _put(x, indices, values, accumulate=False):
    return torch.ops.aten.index_put(x, list(indices), values, accumulate)


case("index_put/rows", lambda x, j, v: _put(x, (j,), v), f(4, 3), IDX, f(3, 3))
case("index_put/rows broadcast", lambda x, j, v: _put(x, (j,), v), f(4, 3), IDX, f(3))
case("index_put/rows scalar", lambda x, j, v: _put(x, (j,), v), f(4, 3), IDX, f())
case("index_put/all dims", lambda x, j, k, v: _put(x, (j, k), v), f(4, 3), IDX, IDX, f(3))
case("index_put/all dims one value", lambda x, j, k, v: _put(x, (j, k), v), f(4, 3), IDX, IDX, f(1))
case("index_put/1d", lambda x, j, v: _put(x, (j,), v), f(5), IDX, f(3))
case("index_put/negative", lambda x, j, v: _put(x, (j,), v), f(5), IDX - 3, f(3))
case("index_put/second dim", lambda x, j, v: _put(x, (None, j), v), f(2, 4), IDX, f(2, 3))
case(
    "index_put/2d index",
    lambda x, j, k, v: _put(x, (j, k), v),
    f(4, 3),
    IDX.view(3, 1),
    IDX[:2],
    f(3, 2),
)
case("index_put/apart", lambda x, j, v: _put(x, (j, None, j), v), f(4, 2, 3), IDX, f(3, 2))
case("index_put/mask scalar", lambda x, m: _put(x, (m,), torch.tensor(7.0)), f(3, 4), b(3, 4))
case(
    "index_put/mask rows",
    lambda x, m: _put(x, (m,), torch.tensor(7.0)),
    f(3, 4),
    torch.tensor([True, False, True]),
)
case(
    "index_put/mask all false",
    lambda x, m: _put(x, (m,), torch.tensor(7.0)),
    f(3, 4),
    torch.zeros(3, 4, dtype=torch.bool),
)
case(
    "index_put/accumulate",
    lambda x, j, v: _put(x, (j,), v, True),
    f(4, 3),
    torch.tensor([1, 1, 3]),
    f(3, 3),
)
case(
    "index_put/accumulate 1d",
    lambda x, j, v: _put(x, (j,), v, True),
    f(5),
    torch.tensor([1, 1, 3]),
    f(3),
)
case(
    "index_put/accumulate broadcast",
    lambda x, j, v: _put(x, (j,), v, True),
    f(4, 3),
    torch.tensor([1, 1, 3]),
    f(1),
)
case(
    "index_put/accumulate two",
    lambda x, j, k, v: _put(x, (j, k), v, True),
    f(4, 3),
    torch.tensor([1, 1, 3]),
    torch.tensor([2, 2, 0]),
    f(3),
)
case(
    "index_put/accumulate i32",
    lambda x, j, v: _put(x, (j,), v, True),
    i(5),
    torch.tensor([1, 1, 3]),
    i(3),
)
case("index_put/rank 3", lambda x, j, v: _put(x, (j,), v), f(4, 2, 3), IDX, f(3, 2, 3))
case("index_put/i32 values", lambda x, j, v: _put(x, (j,), v), i(5), IDX, i(3))
case("index_put/bool values", lambda x, j, v: _put(x, (j,), v), b(5), IDX, b(3))
case("index_put/f16", lambda x, j, v: _put(x, (j,), v), h(5), IDX, h(3))
SI = torch.tensor([[0, 2, 1], [1, 0, 2]])
case("scatter/src", lambda x, j, v: torch.scatter(x, 1, j, v), f(2, 4), SI, f(2, 3))
case(
    "scatter/dim 0",
    lambda x, j, v: torch.scatter(x, 0, j, v),
    f(3, 4),
    torch.tensor([[0, 1, 2]]),
    f(1, 3),
)
case("scatter/src larger", lambda x, j, v: torch.scatter(x, 1, j, v), f(2, 4), SI, f(3, 4))
case("scatter/value", lambda x, j: torch.scatter(x, 1, j, 2.5), f(2, 4), SI)
case("scatter/value i32", lambda x, j: torch.scatter(x, -1, j, 2), i(2, 4), SI)
case("scatter_add/f32", lambda x, j, v: torch.scatter_add(x, 1, j, v), f(2, 4), SI * 0 + 1, f(2, 3))
case(
    "index_add/f32",
    lambda x, j, v: torch.index_add(x, 0, j, v),
    f(4, 3),
    torch.tensor([1, 1, 3]),
    f(3, 3),
)
case("index_copy/f32", lambda x, j, v: torch.index_copy(x, 0, j, v), f(4, 3), IDX, f(3, 3))
case("index_fill/f32", lambda x, j: torch.index_fill(x, 0, j, 2.0), f(4, 3), IDX)
case("one_hot/i64", lambda j: F.one_hot(j, 4), IDX)

# Matrices.
case("mm/f32", torch.mm, f(3, 4), f(4, 5))
case("mm/f16", torch.mm, h(3, 4), h(4, 5))
case("mm/i32", torch.mm, i(3, 4), i(4, 5))
case("mm/empty", torch.mm, f(0, 4), f(4, 5))
case("bmm/f32", torch.bmm, f(2, 3, 4), f(2, 4, 5))
case("bmm/i32", torch.bmm, i(2, 3, 4), i(2, 4, 5))
case("matmul/broadcast", torch.matmul, f(2, 1, 3, 4), f(3, 4, 5))
case("matmul/vector", torch.matmul, f(3, 4), f(4))
case("matmul/dot", torch.matmul, f(4), f(4))
case(
    "addmm/alpha beta",
    lambda x, y, z: torch.addmm(x, y, z, alpha=2.0, beta=0.5),
    f(3, 5),
    f(3, 4),
    f(4, 5),
)
case(
    "addmm/beta 0",
    lambda x, y, z: torch.addmm(x, y, z, beta=0),
    torch.full((3, 5), NAN),
    f(3, 4),
    f(4, 5),
)
case("addmm/broadcast", torch.addmm, f(5), f(3, 4), f(4, 5))
case("addmm/i32", lambda x, y, z: torch.addmm(x, y, z, alpha=2), i(3, 5), i(3, 4), i(4, 5))
case(
    "baddbmm/f32",
    lambda x, y, z: torch.baddbmm(x, y, z, alpha=2.0, beta=0.5),
    f(2, 3, 5),
    f(2, 3, 4),
    f(2, 4, 5),
)
case("linear/1d", F.linear, f(4), f(3, 4), f(3))
case("linear/3d", F.linear, f(2, 5, 4), f(3, 4), f(3))
case("linear/no bias", F.linear, f(5, 4), f(3, 4))
case("outer/f32", torch.outer, f(3), f(4))
case("einsum/f32", lambda x, y: torch.einsum("bij,bkj->bik", x, y), f(2, 3, 4), f(2, 5, 4))

case("mm/inner empty", lambda x, y, z: torch.mm(x * 2, y) + z.exp() * 0, f(3, 0), f(0, 5), f(3, 5))
case("bmm/inner empty", torch.bmm, f(2, 3, 0), f(2, 0, 5))
case("sum/empty large", lambda x, z: torch.sum(x, 1) + z.exp() * 0, f(300, 0), f(300))
case("mean/empty", lambda x, z: torch.mean(x, 1) + z.exp() * 0, f(300, 0), f(300))
case("prod/empty", lambda x, z: torch.prod(x, 1) + z.exp() * 0, f(300, 0), f(300))
case("any/empty", lambda x: torch.any(x, 1), f(300, 0))
case("scalar_tensor/0.1", lambda x: torch.scalar_tensor(0.1) * x, f(3) * 1000)
case("full/0.1", lambda x: torch.full((2, 3), 0.1) + x, f(2, 3))
case("topk/smallest special", lambda x: torch.topk(x, 4, largest=False).values, SPECIAL)
case("sort/descending special", lambda x: torch.sort(x, descending=True)[0], SPECIAL)
case("softmax/zero-dim", lambda x: torch.softmax(x, 0), f())
case("log_softmax/zero-dim", lambda x: torch.log_softmax(x, 0), f())
case("vector_norm/zero-dim", torch.linalg.vector_norm, f())
case("cumsum/zero-dim", lambda x: torch.cumsum(x, 0), f())
case("topk/zero-dim", lambda x: torch.topk(x, 1)[0], f())
case("layer_norm/one value", lambda x: torch.nn.functional.layer_norm(x, (1,)), f(1))
