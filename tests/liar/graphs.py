"""Random ONNX graphs, and what the standard says they are: each node once more, in balls, from its description.

Nothing here is shared with the reader of the package. Nodes of constants alone are left to the reference evaluator of
the onnx package, which rounds them as their format does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import torch
from flint import arb
from onnx import TensorProto, helper, numpy_helper

import onelayer as ol
from liar import formulas, places
from liar.expressions import text, var
from liar.graph_values import UNARY, evaluated
from liar.judge import Tally, Truth, judge, of_expression, try_points
from onelayer.network.foreign import read_network

BATCH = 2  # points that are evaluated together, as a runtime would


class Writer:
    """A graph as it grows: rows (B, width) from the input to the output."""

    def __init__(self, rng: Random, dim: int, kind: int) -> None:
        self.rng, self.width, self.kind = rng, dim, kind
        self.nodes: list[Any] = []
        self.stored: dict[str, np.ndarray] = {}
        self.name, self.count = "x", 0
        self.draw = np.random.default_rng(rng.randrange(2**31))

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def put(self, op: str, *inputs: str, width: int | None = None, **attributes: Any) -> str:
        """A node, whose result is the row from now on."""
        after = self.fresh()
        self.nodes.append(helper.make_node(op, list(inputs), [after], **attributes))
        self.name, self.width = after, self.width if width is None else width
        return after

    def hold(self, values: Any, dtype: Any = None) -> str:
        """A stored tensor of numbers in the format, or of integers."""
        name = self.fresh()
        plain = np.float32 if self.kind == TensorProto.FLOAT else np.float64
        self.stored[name] = np.asarray(values, dtype=dtype or plain)
        return name

    def numbers(self, *shape: int) -> str:
        scale = self.rng.choice([1.0, 1.0, 0.3, 3.0])
        return self.hold(self.draw.normal(size=shape) * scale)

    def whole(self, *values: int) -> str:
        return self.hold(list(values), np.int64)


def _dense(w: Writer) -> None:
    out = w.rng.randint(1, 4)
    if w.rng.random() < 0.5:
        w.put("MatMul", w.name, w.numbers(w.width, out), width=out)
        return
    offset = w.rng.choice([(out,), (1, out), (1,), (), (BATCH, 1)])
    if w.rng.random() < 0.5:
        w.put("Gemm", w.name, w.numbers(out, w.width), w.numbers(*offset), width=out, transB=1)
    else:
        w.put("Gemm", w.name, w.numbers(w.width, out), w.numbers(*offset), width=out)


def _function(w: Writer) -> None:
    name = w.rng.choice([op for op in UNARY if op != "Sqrt"])
    w.put(name, w.name)


def _leaky(w: Writer) -> None:
    op = w.rng.choice(["LeakyRelu", "Elu"])
    given = {} if w.rng.random() < 0.5 else {"alpha": w.rng.choice([0.2, 2.0, -0.3, 0.1])}
    w.put(op, w.name, **given)


def _clipped(w: Writer) -> None:
    ends = [w.rng.choice(["", w.hold(w.rng.choice([-0.5, 0.1, 0.7]))]) for _ in range(2)]
    w.put("Clip", w.name, *ends)


def _with_constant(w: Writer) -> None:
    shape = w.rng.choice([(), (1,), (w.width,), (1, w.width), (1, 1)])
    op = w.rng.choice(["Add", "Sub", "Mul", "Div", "Min", "Max"])
    pair = [w.name, w.numbers(*shape)]
    w.put(op, *(pair if w.rng.random() < 0.6 else pair[::-1]))


def _folded(w: Writer) -> None:
    """Numbers that lose digits in their format when they are combined."""
    a = w.fresh()
    large = w.rng.choice([1e8, 16777216.0, 3.0])
    if w.kind == TensorProto.FLOAT and w.rng.random() < 0.5:
        w.nodes.append(helper.make_node("Constant", [], [a], value_float=large))
    else:
        w.stored[a] = np.asarray(large, dtype=np.float32 if w.kind == TensorProto.FLOAT else np.float64)
    for op, other in (("Add", 1.0), ("Sub", large), (w.rng.choice(["Mul", "Div"]), 3.0)):
        after = w.fresh()
        w.nodes.append(helper.make_node(op, [a, w.hold(other)], [after]))
        a = after
    w.put("Add", w.name, a)


def _with_itself(w: Writer) -> None:
    before = w.name
    w.put(w.rng.choice(["Tanh", "Relu", "Identity", "Dropout"]), before)
    w.put(w.rng.choice(["Add", "Sub", "Mul", "Min", "Max"]), before, w.name)


def _powered(w: Writer) -> None:
    w.put("Pow", w.name, w.hold(w.rng.choice([2.0, 3.0])))


def _rooted(w: Writer) -> None:
    w.put("Mul", w.name, w.name)
    w.put("Add", w.name, w.hold(0.5))
    w.put("Sqrt", w.name)


def _weighed(w: Writer) -> None:
    if w.rng.random() < 0.4:
        mask = [0.0 if at == 0 or w.rng.random() < 0.6 else -np.inf for at in range(w.width)]
        if not any(mask):
            w.put("Softmax", w.name, axis=-1)
            return
        hidden = [at for at, value in enumerate(mask) if value]
        w.put("Softmax", w.put("Add", w.name, w.hold(mask)))
        w.put("Mul", w.name, w.hold([0.0 if at in hidden else 1.0 for at in range(w.width)]))
        return
    w.put("Softmax", w.name, **w.rng.choice([{}, {"axis": 1}, {"axis": -1}, {"axis": 0}]))


def _normalised(w: Writer) -> None:
    given = w.rng.choice([{}, {"epsilon": 0.1}, {"axis": 1}])
    inputs = [w.name, w.numbers(w.width)] + ([w.numbers(w.width)] if w.rng.random() < 0.5 else [])
    w.put("LayerNormalization", *inputs, **given)


def _reduction(w: Writer) -> None:
    axes = w.rng.choice([[1], [1], [-1], [], [0], [0, 1]])
    op = w.rng.choice(["ReduceSum", "ReduceMean"])
    w.put(op, w.name, w.hold(axes, np.int64), keepdims=1, width=w.width if axes == [0] else 1)


def _moved(w: Writer) -> None:
    rng, n = w.rng, w.width
    match rng.choice(["gather", "slice", "concat", "split", "wrap", "turn", "back"]):
        case "gather":
            at = [rng.randrange(-n, n) for _ in range(rng.randint(1, 3))]
            w.put("Gather", w.name, w.whole(*at), axis=1, width=len(at))
        case "slice":
            start, step = rng.choice([(0, 1), (-1, -1), (n - 1, -2)])
            end = {1: rng.choice([n, 2**62, n]), -1: -n - 1, -2: -(2**62)}[step]
            width = len(range(n)[slice(n - 1 if start < 0 else start, None, step)])
            w.put("Slice", w.name, w.whole(start), w.whole(end), w.whole(1), w.whole(step), width=width)
        case "concat":
            w.put("Concat", w.name, w.name, axis=rng.choice([1, -1]), width=2 * n)
        case "split" if n > 1:
            first, second = w.fresh(), w.fresh()
            w.nodes.append(helper.make_node("Split", [w.name, w.whole(1, n - 1)], [first, second], axis=1))
            w.put("Concat", second, first, axis=1)
        case "wrap":
            w.put("Unsqueeze", w.name, w.whole(rng.choice([1, 2, -1])))
            w.put("Flatten", w.name)
        case "turn":
            w.put("Reshape", w.name, w.whole(0, n, 1))
            w.put("Transpose", w.name, perm=[0, 2, 1])
            w.put("Squeeze", w.name, w.whole(1))
        case _:
            w.put("Expand", w.put("Gather", w.name, w.whole(0), axis=1, width=1), w.whole(1, n), width=n)


def _counted(w: Writer) -> None:
    """The number of points, or the points themselves, in the sum of each: to be refused."""
    rng, before = w.rng, w.name
    small = w.hold(rng.choice([1e-3, 1e-5, 1.0]))
    width = w.width
    if rng.random() < 0.5:
        w.put("Cast", w.put("Shape", before, start=0, end=1), to=w.kind)
        w.put("Mul", w.name, small)
    else:
        w.put("Mul", w.put("ReduceMean", before, w.whole(0), keepdims=1), small)
    w.put("Add", before, w.name, width=width)


PARTS: dict[str, tuple[Callable[[Writer], None], float]] = {
    "dense": (_dense, 4.0),
    "function": (_function, 4.0),
    "leaky": (_leaky, 1.0),
    "clipped": (_clipped, 1.0),
    "constant": (_with_constant, 2.0),
    "folded": (_folded, 1.0),
    "itself": (_with_itself, 1.0),
    "powered": (_powered, 0.5),
    "rooted": (_rooted, 0.5),
    "weighed": (_weighed, 1.0),
    "normalised": (_normalised, 0.7),
    "reduction": (_reduction, 1.0),
    "moved": (_moved, 2.0),
    "counted": (_counted, 0.3),
}


def random_graph(rng: Random, dim: int, case: Any) -> Any:
    """A graph (B, dim) to (B, outputs) of a few parts."""
    kind = rng.choice([TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.DOUBLE])
    w = Writer(rng, dim, kind)
    names = rng.choices(list(PARTS), [weight for _, weight in PARTS.values()], k=rng.randint(1, 5))
    for name in names:
        PARTS[name][0](w)
    w.nodes.append(helper.make_node("Identity", [w.name], ["y"]))
    batch = rng.choice(["b", "b", 1])
    x = helper.make_tensor_value_info("x", kind, [batch, dim])
    y = helper.make_tensor_value_info("y", kind, [batch, None])
    stored = [numpy_helper.from_array(value, name) for name, value in w.stored.items()]
    version = rng.choice([18, 18, 19, 20])
    graph = helper.make_graph(w.nodes, "g", [x], [y], stored)
    case.words |= {"parts": names, "batch": batch, "kind": kind, "version": version}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)


def graph_truth(model: Any, batch: bool) -> Callable[[Sequence[float]], list[arb]]:
    """The value of the graph at one point, among others where it takes batches."""

    def values(point: Sequence[float]) -> list[arb]:
        rows = [point, [v / 2 for v in point]][: BATCH if batch else 1]
        x = np.array([[arb(v) for v in row] for row in rows], dtype=object)
        return list(np.asarray(evaluated(model, x), dtype=object)[0].reshape(-1))

    return values


def one_graph(rng: Random, case: Any) -> Tally:
    """A network from an ONNX file: in real arithmetic it is the graph, and executed it keeps its certificate."""
    from liar.attacks import certified
    from liar.claims import SECONDS
    from liar.trips import saved_trip

    dim = rng.choice([1, 2, 2])
    low, high = places.ordinary(rng, dim)
    model = random_graph(rng, dim, case)
    with tempfile.TemporaryDirectory(prefix="liar") as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(model, path)
        network = read_network(path)
    count = int(np.prod(network.program.output_shape))
    f = formulas.smooth(rng, dim) if rng.random() < 0.5 else 0.0 * var(0)
    case.words |= {"f": text(f), "low": low, "high": high}
    execution = rng.choice(["real", "real", "float32" if network.dtype == torch.float32 else "float64"])
    box = ol.Box(low, high)
    formula = "; ".join([text(f)] * count)
    certificate = certified(network, formula, box, rng, case, execution=execution, max_seconds=SECONDS)
    real = graph_truth(model, case.words["batch"] == "b") if execution == "real" else None
    truth = Truth(of_expression(*[f] * count), None if real else network, network.dtype, real)
    points = try_points(certificate, truth, rng)
    tally = judge(certificate, truth, points, rng)
    if certificate.status == "proved" and rng.random() < 0.3:
        tally += saved_trip(certificate)
    return tally
