"""The training loop: first-order steps, then L-BFGS rounds; between any two chunks its whole state can be saved."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onelayer.errors import FileError, OnelayerError, told
from onelayer.observer import Observer, Stopped
from onelayer.training.checkpoint import read_checkpoint, write_checkpoint
from onelayer.training.examples import Examples
from onelayer.training.measure import TrainingTask
from onelayer.training.recipe import Recipe

ROUND = 20  # L-BFGS iterations between two measurements
# torch's L-BFGS drops curvature pairs below 1e-10, so a small loss must be scaled up or it stops learning from them.
LBFGS_LOSS = 1e6
MOMENTUM = 0.9  # the usual one

Row = dict[str, Any]


class Loop:
    """Trains ``model`` in place. The trajectory depends on the recipe, the source and the start, on nothing else."""

    def __init__(
        self, model: nn.Module, source: Examples, task: TrainingTask, checkpoint: Path | None, fingerprint: str
    ) -> None:
        self.model = model
        self.source = source
        self.task = task
        self.recipe: Recipe = task.recipe
        self.checkpoint = checkpoint
        self.fingerprint = fingerprint
        self.step = self.rounds = 0
        self.scale = 0.0  # of the loss in L-BFGS; 0 before it starts
        self.stopped = False
        self.history: list[Row] = []
        self.best: dict[str, Tensor] | None = None
        self.optimiser = self._first_order()
        self.test = source.test()
        self.started = time.monotonic()

    def resume(self) -> bool:
        """Go on from the checkpoint if there is one; refuse one that another run left."""
        state = None if self.checkpoint is None else read_checkpoint(self.checkpoint)
        if state is None:
            return False
        if state.get("fingerprint") != self.fingerprint:
            raise OnelayerError(
                f"{self.checkpoint} holds a checkpoint of other settings or data; choose another folder or resume=False"
            )
        try:
            self._take_up(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise FileError(f"{self.checkpoint} holds a corrupt checkpoint ({told(error)}); remove it") from error
        return True

    def _take_up(self, state: Row) -> None:
        self.step = state["step"]
        self.rounds = state["rounds"]
        self.scale = state["scale"]
        self.stopped = state["stopped"]
        self.history = state["history"]
        self.best = state["best"]
        self.model.load_state_dict(state["weights"])
        if self.scale:
            self.optimiser = self._lbfgs()
        self.optimiser.load_state_dict(state["optimiser"])
        self.source.load_state(state["source"])
        self.started = time.monotonic() - (self.history[-1]["seconds"] if self.history else 0.0)

    def save(self) -> None:
        """Write a checkpoint, if there is a folder for it."""
        if self.checkpoint is None:
            return
        state = {
            "fingerprint": self.fingerprint,
            "step": self.step,
            "rounds": self.rounds,
            "scale": self.scale,
            "stopped": self.stopped,
            "history": self.history,
            "best": self.best,
            "weights": dict(self.model.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "source": self.source.state(),
        }
        write_checkpoint(self.checkpoint, state)

    def run(self, observer: Observer) -> None:
        """Train to the end of the recipe, until patience is lost or the observer stops it.

        With patience the best weights measured are kept. A checkpoint is written after every measurement, so a stopped
        run goes on from there.
        """
        recipe = self.recipe
        total = recipe.steps + recipe.lbfgs_steps
        while not (self.stopped or observer.over):
            if self.step >= recipe.steps and self.rounds * ROUND >= recipe.lbfgs_steps:
                break
            try:
                loss = self._stage(observer)
            except Stopped:  # the time ended while a black box was asked for examples
                break
            self._record(loss)
            if not observer.over:  # a checkpoint lies where an uninterrupted run would have put it
                self.save()
            done = self.step + min(self.rounds * ROUND, recipe.lbfgs_steps)
            observer.report("training", done / max(1, total), detail=_progress(done, total, self.history[-1]))
        if self.best is not None:
            self.model.load_state_dict(self.best)

    def _stage(self, observer: Observer) -> float:
        """What lies between two measurements: first-order steps as long as there are any, then a round of L-BFGS."""
        left = self.recipe.steps - self.step
        if left > 0:
            return self._steps(min(self.recipe.interval, left), observer)
        return self._round(observer)

    def _record(self, loss: float) -> None:
        phase = "l-bfgs" if self.scale else self.recipe.optimiser
        row: Row = {"step": self.step + self.rounds * ROUND, "phase": phase, "loss": loss}
        row |= self.task.measure(self.model, self.test)
        row["seconds"] = time.monotonic() - self.started
        self.history.append(row)
        if not self.recipe.patience:
            return
        merits = [self.task.merit(item) for item in self.history]
        at = merits.index(min(merits))
        if at == len(merits) - 1:
            self.best = self._weights()
        self.stopped = len(merits) - 1 - at >= self.recipe.patience

    def _weights(self) -> dict[str, Tensor]:
        """A copy of the weights as they are."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def _steps(self, count: int, observer: Observer) -> float:
        """``count`` first-order steps, fewer when the observer stops them; the mean of their losses."""
        total, first = 0.0, self.step
        while self.step < first + count and not (observer.over and self.step > first):
            for group in self.optimiser.param_groups:
                group["lr"] = self.recipe.rate(self.step)
            x, y = self.task.prepared(self.source.batch(self.recipe.batch))
            self.optimiser.zero_grad()
            loss = self.task.loss(self.model, x, y)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            self.step += 1
            total += float(loss.detach())
        return self._finite(total / (self.step - first))

    def _round(self, observer: Observer) -> float:
        """One round of L-BFGS on the fixed examples; one that the observer stops is undone."""
        x, y = self.task.prepared(self.source.fixed())
        if not self.scale:
            with torch.no_grad():
                self.scale = LBFGS_LOSS / max(float(self.task.loss(self.model, x, y)), 1e-300)
            self.optimiser = self._lbfgs()

        def closure() -> Tensor:
            observer.check()
            self.optimiser.zero_grad()
            loss = self.scale * self.task.loss(self.model, x, y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        before = self._weights()
        try:
            self.optimiser.step(closure)  # type: ignore[arg-type]
            self.rounds += 1
        except Stopped:  # in a line search, whose trial may be worse than its start
            self.model.load_state_dict(before)
        with torch.no_grad():
            return self._finite(float(self.task.loss(self.model, x, y)))

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise OnelayerError(f"training diverged before step {self.step}: the loss is {loss}; lower lr")
        return loss

    def _first_order(self) -> torch.optim.Optimizer:
        recipe = self.recipe
        parameters = list(self.model.parameters())
        decay = recipe.weight_decay
        rate = recipe.rate(0)
        if recipe.optimiser == "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, foreach=True)
        if recipe.optimiser == "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, foreach=True)
        momentum = MOMENTUM if recipe.optimiser == "momentum" else 0.0
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay, foreach=True)

    def _lbfgs(self) -> torch.optim.Optimizer:
        """Tolerances of zero: the number of rounds ends it, not a threshold in units of the loss."""
        return torch.optim.LBFGS(
            self.model.parameters(),
            max_iter=ROUND,
            history_size=ROUND * 2,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )


def _progress(done: int, total: int, row: Row) -> str:
    seen = [f"{key} {row[key]:.3g}" for key in ("sup", "rmse", "accuracy", "cosine", "loss") if key in row]
    return f"step {done:,} of {total:,}: {', '.join(seen)}"
