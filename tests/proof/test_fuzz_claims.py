"""Folders of claims about networks are as hostile as those of layers: each file changed by its grammar, signed anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from claim_truth import falsehood_of_claim
from folder_parts import Folder
from test_fuzz_files import checked, fuzzed, one_line, written
from torch import nn

import onelayer as ol
from onelayer.errors import OnelayerError

BOX = ol.Box([-1.0, -0.5], [1.0, 0.5])


def network(middle: nn.Module, outputs: int = 1, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(outputs)
    return nn.Sequential(nn.Linear(2, 3), middle, nn.Linear(3, outputs)).to(dtype).eval()


def positive(middle: nn.Module) -> nn.Module:
    model = network(middle)
    with torch.no_grad():
        for weight in model.parameters():
            weight.abs_().add_(0.1)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Folder]:
    """Small honest folders of every kind of claim."""
    tanh, kinks = network(nn.Tanh(), 2, torch.float32), network(nn.ReLU())
    made = {
        "error": ol.certify(tanh, "x1; sin(x2)", BOX, gap=0.3),
        "range": ol.bound(tanh, BOX, gap=0.2).certificate,
        "difference": ol.equivalent(kinks, positive(nn.ReLU()), BOX, gap=0.5),
        "lipschitz": ol.lipschitz(tanh, BOX, gap=0.3),
        "norm 2": ol.lipschitz(kinks, BOX, norm=2, gap=0.5),
        "slopes": ol.gradient_error(network(nn.SiLU()), "x1*x2", BOX, gap=0.3),
        "monotone": ol.monotone(positive(nn.Tanh()), BOX, {"x1": "+", "x2": "+"}).certificate,
        "convex": ol.convex(positive(nn.Softplus()), BOX).certificate,
        "condition": ol.prove(tanh, BOX, "y1 <= y2 + 3 and y1 > x1 - 5").certificate,
    }
    root = tmp_path_factory.mktemp("claims")
    paths = {name: claim.save(root / name.replace(" ", "-")) for name, claim in made.items()}
    return {name: {file.name: file.read_bytes() for file in path.iterdir()} for name, path in paths.items()}


def outcome(path: Path) -> str:
    """The word of the checker; an accepted claim can be loaded, and is true at points."""
    word = checked(path)
    try:
        found = ol.load_claim(path)
    except OnelayerError as error:
        if word == "accepted":
            raise
        return one_line(error, word)
    lie = falsehood_of_claim(found) if word == "accepted" else None
    assert lie is None, lie
    return word


def test_honest_claims_are_accepted(folders: dict[str, Folder], tmp_path: Path) -> None:
    for name, folder in folders.items():
        assert outcome(written(folder, tmp_path / "folder")) == "accepted", name


def test_a_false_claim_is_seen_at_points(folders: dict[str, Folder], tmp_path: Path) -> None:
    for name, folder in folders.items():
        found = ol.load_claim(written(folder, tmp_path / "folder"))
        honest = found.certificate
        smaller = replace(honest, status="proved", eps=None, lower=0.0, witness=None, upper=0.3 * honest.upper)
        assert falsehood_of_claim(found) is None, name
        assert falsehood_of_claim(replace(found, certificate=smaller)) is not None, name


def test_mutated_claims(folders: dict[str, Folder], tmp_path: Path) -> None:
    words = fuzzed(folders, tmp_path / "folder", 0, 300, outcome)
    assert words["bad file"] > 60
    assert words["rejected"] > 30
    assert words["accepted"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_mutated_claims(folders: dict[str, Folder], tmp_path: Path, seed: int) -> None:
    assert fuzzed(folders, tmp_path / "folder", seed, 1000, outcome).total() == 1000
