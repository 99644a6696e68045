"""A training run that is killed at any moment goes on to the same weights, to the bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from onelayer.errors import OnelayerError
from onelayer.training.checkpoint import FILE_NAME, read_checkpoint
from onelayer.training.train import train

SCRIPT = Path(__file__).with_name("interrupted.py")
sys.path.insert(0, str(SCRIPT.parent))

from interrupted import RUN, run  # noqa: E402


def kill_when(folder: Path, optimiser: str, position: int) -> int:
    """Start the run, kill -9 it once its checkpoint is at ``position`` steps or later; where it was then."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), optimiser], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and process.poll() is None:
            state = read_checkpoint(folder)
            if state is not None and state["step"] + 20 * state["rounds"] >= position:
                break
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    state = read_checkpoint(folder)
    assert state is not None
    return int(state["step"] + 20 * state["rounds"])


@pytest.mark.parametrize(
    ("optimiser", "moments"), [("adamw", [40]), pytest.param("momentum", [20, 130], marks=pytest.mark.slow)]
)
def test_killed_run_ends_in_the_same_weights(tmp_path: Path, optimiser: str, moments: list[int]) -> None:
    """Killed among first-order steps, or there and then again in L-BFGS."""
    whole = run(None, optimiser)
    positions = [kill_when(tmp_path, optimiser, at) for at in moments]
    assert all(at <= position < 160 for at, position in zip(moments, positions, strict=True)), "killed before the end"
    resumed = run(tmp_path, optimiser)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    keys = ("step", "phase", "loss", "sup", "rmse")
    assert [[row[key] for key in keys] for row in whole.history] == [
        [row[key] for key in keys] for row in resumed.history
    ]
    assert whole.final == resumed.final


def test_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "adam")
    with pytest.raises(OnelayerError, match="other settings"):
        run(tmp_path, "sgd")


def test_corrupt_checkpoint_is_one_line(tmp_path: Path) -> None:
    run(tmp_path, "adam")
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OnelayerError, match="corrupt") as caught:
        run(tmp_path, "adam")
    assert "\n" not in str(caught.value)


def test_table_run_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 70, dtype=torch.float64)[:, None].repeat(1, 2)
    x[:, 1] = x[:, 1] ** 2
    y = torch.sin(3 * x[:, 0])
    options = {**RUN, "memory": 4, "steps": 60, "every": 7}
    whole = train((x, y), **options)
    first = train((x, y), checkpoint=tmp_path, patience=0, **options)
    again = train((x, y), checkpoint=tmp_path, **options)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, first.model.state_dict()[name])
        assert torch.equal(value, again.model.state_dict()[name])
