"""SentenceEncoder: a BERT-type sentence encoder in plain torch, from the files that Hugging Face models come in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from onelayer.disk import as_path, read_bounded, strict_json
from onelayer.errors import FileError, OnelayerError, told

PAD = 0  # the id of padding in BERT-type vocabularies
MOST_BYTES = 2**34  # of a file of a teacher


class SentenceEncoder(nn.Module):
    """Token ids (B, n), padded with 0, to unit vectors (B, d): embeddings, post-norm blocks with GELU, masked mean.

    ``state`` has the names of Hugging Face's BertModel. The weights are frozen: this is a teacher.
    """

    def __init__(self, state: Mapping[str, Tensor], *, heads: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.heads = heads
        self.eps = eps
        # The pooler and heads of other tasks stay behind, and so do the ids of positions, whole numbers.
        parts = ("embeddings.", "encoder.layer.")
        kept = {name: value for name, value in state.items() if name.startswith(parts) and value.is_floating_point()}
        if "embeddings.word_embeddings.weight" not in kept:
            raise OnelayerError("not the weights of a BERT-type encoder: embeddings.word_embeddings.weight is missing")
        self.weights = nn.ParameterDict()
        for name, value in kept.items():
            # torch takes dots in the name of a parameter for parts of modules.
            self.weights[name.replace(".", "/")] = nn.Parameter(value.float(), requires_grad=False)
        blocks = {name.split(".")[2] for name in kept if name.startswith("encoder.layer.")}
        self.depth = len(blocks)
        self.tokenizer: Any = None

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> SentenceEncoder:
        """The encoder of config.json, model.safetensors and tokenizer.json (read by the tokenizers library)."""
        path = as_path(folder)
        try:
            config = strict_json(_bytes(path / "config.json"), "config.json")
            state = safetensors.torch.load(_bytes(path / "model.safetensors"))
        except (OSError, ValueError, SafetensorError) as error:
            raise FileError(f"{path} holds no readable encoder (config.json, model.safetensors): {error}") from error
        encoder = cls(state, **_settings(path, config))
        encoder._need_whole(path)
        if (path / "tokenizer.json").exists():
            encoder.tokenizer = _tokenizer(path / "tokenizer.json")
        return encoder

    def _need_whole(self, path: Path) -> None:
        """FileError unless the weights fit each other: the encoder is run once, on one token."""
        try:
            with torch.no_grad():
                self(torch.zeros(1, 1, dtype=torch.long))
        # A tensor that is not there, sizes that differ, a table of no axes, heads that do not divide the width.
        except (AttributeError, RuntimeError, IndexError, TypeError, ValueError) as error:
            raise FileError(f"{path} holds no whole encoder: {told(error)}") from error

    def own(self, name: str) -> Tensor:
        """A weight by its name in the files."""
        tensor: Tensor = self.weights[name.replace(".", "/")]
        return tensor

    @property
    def table(self) -> Tensor:
        """Word embeddings (vocabulary, d)."""
        return self.own("embeddings.word_embeddings.weight")

    def tokenize(self, texts: Sequence[str], length: int) -> Tensor:
        """Ids (B, length), cut or padded with 0."""
        if self.tokenizer is None:
            raise OnelayerError(
                "no tokenizer: needs the tokenizers library (pip install tokenizers) and tokenizer.json"
            )
        self.tokenizer.enable_truncation(length)
        self.tokenizer.enable_padding(length=length, pad_id=PAD)
        rows = [item.ids for item in self.tokenizer.encode_batch(list(texts))]
        ids = torch.tensor(rows, dtype=torch.long)
        if ids.numel() and int(ids.max()) >= len(self.table):
            raise OnelayerError(f"the tokenizer knows more words than the encoder: it has {len(self.table):,}")
        return ids

    def forward(self, ids: Tensor) -> Tensor:
        """(B, n) whole numbers -> (B, d) vectors of length one."""
        mask = ids != PAD  # (B, n)
        positions = self.own("embeddings.position_embeddings.weight")[: ids.shape[1]]
        first_sentence = self.own("embeddings.token_type_embeddings.weight")[0]
        x = self.table[ids] + positions
        x = self._norm(x + first_sentence, "embeddings.LayerNorm")
        for layer in range(self.depth):
            x = self._block(x, mask, f"encoder.layer.{layer}")
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(mean, dim=-1)

    def _block(self, x: Tensor, mask: Tensor, name: str) -> Tensor:
        query, key, value = (
            self._by_head(self._linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        z = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        a = self._linear(z.transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        x = self._norm(x + a, f"{name}.attention.output.LayerNorm")
        inner = F.gelu(self._linear(x, f"{name}.intermediate.dense"))
        outer = self._linear(inner, f"{name}.output.dense")
        return self._norm(x + outer, f"{name}.output.LayerNorm")

    def _by_head(self, x: Tensor) -> Tensor:
        """(B, n, d) -> (B, H, n, d / H)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.own(f"{name}.weight"), self.own(f"{name}.bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.own(f"{name}.weight"), self.own(f"{name}.bias"), self.eps)


class SentenceStudent(nn.Module):
    """One layer over looked-up tokens: ids (B, n) -> (B, d).

    A token is its row of ``table`` and a 1 that padding lacks: the layer has no mask and learns from that number what
    to ignore. ``table`` is shared with the teacher and stays as it is.
    """

    def __init__(self, table: Tensor, layer: nn.Module) -> None:
        super().__init__()
        self.register_buffer("table", table.detach().clone())
        self.layer = layer

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors of sentences, given as ids with padding."""
        table: Tensor = self.get_buffer("table")
        present = (ids != PAD).to(table.dtype)[..., None]
        out: Tensor = self.layer(torch.cat([table[ids] * present, present], -1))
        return out


def _bytes(path: Path) -> bytes:
    """A file of the folder; the cache of Hugging Face keeps links to its files."""
    return read_bounded(path.resolve(), MOST_BYTES)


def _settings(path: Path, config: Any) -> dict[str, Any]:
    """Heads and the epsilon of the normalisations."""
    given = config if isinstance(config, dict) else {}
    heads, eps = given.get("num_attention_heads"), given.get("layer_norm_eps")
    if type(heads) is not int or heads < 1 or not isinstance(eps, float) or eps < 0:
        raise FileError(f"{path}: config.json must say num_attention_heads and layer_norm_eps")
    return {"heads": heads, "eps": eps}


def _tokenizer(path: Path) -> Any:
    """What the tokenizers library makes of a file, or None without it."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    text = _bytes(path)
    try:
        return Tokenizer.from_str(text.decode("utf-8"))
    # The library has no kind of error of its own.
    except Exception as error:
        raise FileError(f"{path} is no tokenizer: {told(error)}") from error
