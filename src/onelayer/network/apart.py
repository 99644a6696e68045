"""Whether a network of two points treats each of them alone, decided by what its entries are, not by numbers.

Every entry gets a fingerprint: a hash of its operation, the numbers in it and the fingerprints of all that it reads.
Lemma: up to a collision of 64-bit hashes with keys drawn afresh, equal fingerprints mean the same expression of the
same inputs. So where the results for either of two points have the fingerprints of the network of one point, neither
the other point nor the number of points enters. A comparison of values would miss what is small or undefined.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelayer.network.network import RecordedNetwork
from onelayer.network.program import Step

Hashes = NDArray[np.uint64]
PAIR = 2  # points that are looked at together


def apart(one: RecordedNetwork, pair: RecordedNetwork) -> bool:
    """Whether ``pair``, (2, *shape) to (2, *outputs), is ``one`` of either point."""
    look = _Look()
    shape = one.program.input_shape
    # What pools over the batch has lost it.
    if pair.program.output_shape != (PAIR, *one.program.output_shape):
        return False
    points = look.inputs((PAIR, *shape))
    both = look.through(pair, points)
    each = [look.through(one, points[at]) for at in range(PAIR)]
    return all(np.array_equal(both[at], each[at]) for at in range(PAIR))


class _Look:
    """Fingerprints under one key."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(16)

    def inputs(self, shape: tuple[int, ...]) -> Hashes:
        """One for every entry of the points."""
        count = math.prod(shape)
        drawn = secrets.token_bytes(8 * count)
        return np.frombuffer(drawn, dtype=np.uint64).reshape(shape)

    def through(self, network: RecordedNetwork, points: Hashes) -> Hashes:
        """Those of the result of a network."""
        values = [points]
        for step in network.program.steps:
            read = [self._read(network, step, arg, values) for arg in step.args]
            values.append(self._step(step, read))
        return values[-1]

    def _read(self, network: RecordedNetwork, step: Step, arg: int | str, values: list[Hashes]) -> Hashes:
        if isinstance(arg, int):
            return values[arg]
        return self._stored(network, step, arg)

    def _stored(self, network: RecordedNetwork, step: Step, name: str) -> Hashes:
        """Of a tensor; one that is subtracted counts as its negative, which is added."""
        numbers = network.tensor(name).detach().double().numpy()
        subtracted = step.op == "sub" and step.args[1] == name
        return self._numbers(-numbers if subtracted else numbers)

    def _numbers(self, values: Any) -> Hashes:
        bits = np.atleast_1d(np.asarray(values, dtype=np.float64)).view(np.uint64)
        return _mixed(bits ^ self._word("number")).reshape(np.shape(values))

    def _word(self, *words: Any) -> np.uint64:
        """The hash of words."""
        text = repr(words).encode()
        digest = hashlib.blake2b(text, digest_size=8, key=self.key).digest()
        return np.uint64(int.from_bytes(digest, "little"))

    def _joined(self, op: str, a: Hashes, b: Hashes) -> Hashes:
        """Of two entries, the order mattering."""
        return _mixed(_mixed(a ^ self._word(op)) ^ b)

    def _rows(self, x: Hashes) -> Hashes:
        """Of all entries along the last axis together, each at its place."""
        # A sum forgets the order, so every entry is mixed with its place before.
        width = x.shape[-1]
        places = _mixed(np.arange(width, dtype=np.uint64) ^ self._word("place"))
        total = _mixed(x ^ places).sum(-1, dtype=np.uint64)
        return _mixed(total ^ self._word("row", width))

    def _step(self, step: Step, read: list[Hashes]) -> Hashes:
        if step.op in _OTHERS:
            return _OTHERS[step.op](self, step, read)
        # By one number: a product or sum like any other.
        if step.op in ("scale", "shift"):
            op = "mul" if step.op == "scale" else "add"
            return self._joined(op, read[0], self._numbers(step.number))
        if len(read) == 2:
            added = step.op == "sub" and isinstance(step.args[1], str)
            return self._joined("add" if added else step.op, *read)
        return _mixed(read[0] ^ self._word(step.op, step.number))

    def arranged(self, step: Step, read: list[Hashes]) -> Hashes:
        """The entries themselves."""
        flat = np.concatenate([part.reshape(-1) for part in read])
        chosen = flat if step.places is None else flat[list(step.places)]
        return chosen.reshape(step.shape)

    def affine(self, step: Step, read: list[Hashes]) -> Hashes:
        """A row of the weights with the row of x, and an offset."""
        rows = self._rows(read[0])[..., None]
        found = self._joined("affine", rows, self._rows(read[1]))
        if len(read) > 2:
            return self._joined("offset", found, read[2])
        return found

    def product(self, step: Step, read: list[Hashes]) -> Hashes:
        """A row with a column."""
        rows = self._rows(read[0])
        columns = self._rows(np.swapaxes(read[1], -1, -2))
        return self._joined("matmul", rows[..., :, None], columns[..., None, :])

    def softmax(self, step: Step, read: list[Hashes]) -> Hashes:
        """An entry among those of its row that take part."""
        x = read[0]
        if step.places is not None:
            taking = np.zeros(x.size, dtype=bool)
            taking[list(step.places)] = True
            x = np.where(taking.reshape(x.shape), x, self._word("hidden"))
        return self._joined("softmax", x, self._rows(x)[..., None])

    def normalised(self, step: Step, read: list[Hashes]) -> Hashes:
        """An entry in its row, with a gain and an offset."""
        x, gain, offset = read
        among = self._joined(f"norm {step.number!r}", x, self._rows(x)[..., None])
        scaled = self._joined("gain", among, gain)
        return self._joined("offset", scaled, offset)

    def reduced(self, step: Step, read: list[Hashes]) -> Hashes:
        """A row as a whole."""
        return _mixed(self._rows(read[0]) ^ self._word(step.op))


def _mixed(h: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection that spreads every bit."""
    h = np.atleast_1d(h)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Hashes = h ^ (h >> np.uint64(31))
    return found


_OTHERS: dict[str, Callable[[_Look, Step, list[Hashes]], Hashes]] = {
    "arrange": _Look.arranged,
    "affine": _Look.affine,
    "matmul": _Look.product,
    "softmax": _Look.softmax,
    "layer_norm": _Look.normalised,
    "sum": _Look.reduced,
    "mean": _Look.reduced,
}
