"""The paper from front to back: its sections in our words, and the experiments that stand in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onelayer.errors import OnelayerError
from onelayer.paper import (
    distillation,
    equations,
    finite,
    heads,
    obstruction,
    positionwise,
    practice,
    regions,
    theorem,
)
from onelayer.paper.finding import Experiment

# Who proves what, and under which assumptions: said once in every report.
PROVERS = (
    "The repaired theorem and the counterexamples to the failing steps are theorems in Coq, checked by its kernel from "
    "the axioms of its classical real numbers and nothing else (formal/). The experiments here are runs: where one "
    "says proved, Taylor models bound sup|T − f| over the whole domain, the rounding of the forward pass included, "
    "under the assumptions about the processor that each certificate lists, and onelayer check can prove it again in "
    "Arb's ball arithmetic. Coq also checks certificates of lookup layers, in real arithmetic only: rounding stays "
    "with the certificate in Python."
)


@dataclass(frozen=True)
class Section:
    """A section of the paper, what it is about, and its experiments in the order of the text."""

    name: str
    title: str
    about: str
    experiments: tuple[Experiment, ...]


FOUNDATIONS = Section(
    "foundations",
    "II. Mathematical foundations",
    "Dense layers, expected loss, cross-entropy and gradient descent: four equations, all standard.",
    (
        Experiment(
            "equations-1-4",
            "Equations (1) to (4) and the optimisers",
            "Section II",
            "A dense layer, the expected loss, the cross-entropy and gradient descent are given by equations (1) "
            "to (4), with momentum and Adam as its improvements.",
            equations.foundations,
        ),
    ),
)

ATTENTION = Section(
    "attention",
    "III. Attention",
    "Scaled dot-product attention, many heads, positions. The definitions are right; one property is named wrongly.",
    (
        Experiment(
            "equations-5-8",
            "Equations (5) to (8) and Figure 1",
            "Section III, Figure 1",
            "Attention weights, their output, the matrix form and multi-head attention are given by equations "
            "(5) to (8).",
            equations.attention,
        ),
        Experiment(
            "9",
            "Invariant or equivariant",
            "Section III, on positional encodings",
            "Attention is permutation-invariant to its input tokens.",
            heads.equivariance,
        ),
        Experiment(
            "15",
            "Skip connections and LayerNorm",
            "Section III, last paragraphs",
            "A block has skip connections and layer normalisation; the theorem is about that block.",
            positionwise.skips_and_norms,
        ),
    ),
)

BACKPROPAGATION = Section(
    "backpropagation",
    "IV. Backpropagation",
    "The chain rule layer by layer, equations (9) and (10), and a figure of the two passes.",
    (
        Experiment(
            "14",
            "Equations (9) and (10) and Figure 2",
            "Section IV, equations (9) and (10), Figure 2",
            "With δ the slope of the loss with respect to the output of a layer, equations (9) and (10) give all "
            "gradients.",
            equations.backpropagation,
        ),
        Experiment(
            "digits",
            "Training by backpropagation",
            "Sections II-C and IV",
            "Backpropagation with gradient descent trains networks; Adam often converges faster.",
            practice.digits,
            needs="sklearn",
        ),
    ),
)

PROOF = Section(
    "proof",
    "V. Theorem 1 as printed",
    "The proof cuts the domain into regions, gives each a head that recognises it by a hyperplane, lets other "
    "heads sleep, and leaves the rest to the feed-forward network. Step by step:",
    (
        Experiment(
            "1",
            "A hyperplane for every region",
            "Section V, first bullet of the proof",
            "By Hahn and Banach, a hyperplane separates each region from all the others.",
            regions.separation,
        ),
        Experiment(
            "2",
            "A margin between regions",
            "Section V, first bullet of the proof",
            "Each region is separated from the others by some margin.",
            regions.margin,
        ),
        Experiment(
            "3",
            "One head per region",
            "Section V, “only the head corresponding to the region”",
            "Heads that each recognise their region sum to a function within ε of f everywhere.",
            regions.one_head_per_region,
        ),
        Experiment(
            "4",
            "A head that recognises a sequence",
            "Section V, “detect when a new input belongs to region”",
            "A head can tell whether the whole input sequence lies in its region.",
            heads.two_tokens_per_logit,
        ),
        Experiment(
            "5",
            "Attention alone",
            "Section V, “in the simplest case … an identity mapping”",
            "Attention alone suffices: the feed-forward network may be the identity.",
            obstruction.attention_alone,
        ),
        Experiment(
            "6",
            "Values of our choice",
            "Section V, second bullet of the proof",
            "The value vector of a head can be set to the desired output of its region.",
            heads.linear_values,
        ),
        Experiment(
            "7",
            "Dormant heads",
            "Section V, “other heads are effectively dormant”",
            "Heads whose region does not contain the input contribute nothing.",
            heads.dormant_heads,
        ),
        Experiment(
            "8",
            "No positional encoding in the statement",
            "Section V, Theorem 1",
            "For every continuous f on sequences there is a one-layer Transformer within ε; no positions are "
            "mentioned.",
            positionwise.no_positions,
        ),
        Experiment(
            "10",
            "Whose logits compete",
            "Section V, “Formally, suppose x ∈ R_j”",
            "The logit of the right region dominates those of all other regions, in its head and across heads.",
            heads.keys_and_heads,
        ),
        Experiment(
            "11",
            "The identity through a ReLU",
            "Section V, “setting its linear transformation to the identity”",
            "The feed-forward network can be made the identity by identity weights.",
            positionwise.relu_identity,
        ),
        Experiment(
            "12",
            "Correcting the residual",
            "Section V, “correct any small residual”",
            "The feed-forward network can correct what remains between the attention output and f.",
            positionwise.residual_correction,
        ),
        Experiment(
            "13",
            "Distribution to positions",
            "Section V, “output sequence structure”",
            "The feed-forward network is universal on sequences, and W^O distributes outputs to their positions.",
            positionwise.same_at_every_position,
        ),
        Experiment(
            "16",
            "Infinite scaling",
            "Section V, “in the limit of infinite scaling”",
            "In the limit of infinite scaling the weights become exact; therefore the error is below ε.",
            regions.finite_scale,
        ),
    ),
)

THEOREM = Section(
    "theorem",
    "V. Theorem 1 repaired, and run",
    "The statement survives its proof. Two constructions prove it in sup norm; both run here with certificates.",
    (
        Experiment(
            "theorem",
            "sin x₁ + sin x₂, built and proved",
            "Section V, Theorem 1; Section VI-A, its example",
            "A large enough one-layer Transformer approximates f uniformly to any accuracy.",
            theorem.repaired,
        ),
        Experiment(
            "sequences",
            "Sequences to sequences",
            "Section V, Theorem 1",
            "The same for functions from sequences to sequences.",
            theorem.sequence_to_sequence,
        ),
    ),
)

CASES = Section(
    "cases",
    "VI-A. Case studies",
    "The paper suggests small experiments; here they are.",
    (
        Experiment(
            "training",
            "sin x₁ + sin x₂, trained",
            "Section VI-A, first paragraph",
            "As the number of heads or the dimension grows, the error of a trained layer decreases.",
            practice.training,
        ),
        Experiment(
            "17",
            "Memorising a data set",
            "Section VI-A, second paragraph",
            "Exact memorisation of any finite data set is a corollary of universality.",
            finite.memorisation,
        ),
        Experiment(
            "18",
            "Sorting",
            "Section VI-A, second paragraph",
            "In theory one layer can sort, by attention that finds the order.",
            finite.sorting,
        ),
    ),
)

MODELS = Section(
    "models",
    "VI-B. Deep models and single layers",
    "Depth is a matter of efficiency, the paper says, and a deep model could be distilled into one wide layer.",
    (
        Experiment(
            "depth",
            "Depth against width",
            "Section VI-B, second paragraph",
            "Depth is not needed for expressiveness, but deeper models may do the same with fewer parameters.",
            practice.depth,
        ),
        Experiment(
            "distillation",
            "Four blocks into one layer",
            "Section VI-B, last paragraph",
            "A deep Transformer may be distilled into a single layer with a large internal dimension.",
            distillation.four_blocks,
        ),
    ),
)

OPEN = Section(
    "open",
    "VI-C and VII. Limits and open questions",
    "What the paper leaves for later: how large, how trainable, and other kinds of attention.",
    (
        Experiment(
            "trainability",
            "Existence against training",
            "Section VI-C, first paragraph",
            "That good parameters exist does not mean that gradient descent finds them.",
            practice.trainability,
        ),
        Experiment(
            "size",
            "How large for a given ε",
            "Sections V and VI-C, “does not specify how large”",
            "The theorem only promises that some size suffices; a very large number of heads may be needed.",
            theorem.size_for_accuracy,
        ),
        Experiment(
            "kinds",
            "Sparse and linear attention",
            "Section VI-C, last paragraph; Section VII",
            "Universality may extend to sparse and to linearised attention.",
            practice.kinds,
        ),
    ),
)

SECTIONS: tuple[Section, ...] = (FOUNDATIONS, ATTENTION, BACKPROPAGATION, PROOF, THEOREM, CASES, MODELS, OPEN)
ROWS = tuple(str(row) for row in range(1, 19))


def experiments() -> tuple[Experiment, ...]:
    """All experiments in the order of the paper."""
    return tuple(item for section in SECTIONS for item in section.experiments)


def chosen(keys: Sequence[str]) -> tuple[Experiment, ...]:
    """The experiments of those keys, in the order of the paper; all of them if none is named."""
    known = {item.key: item for item in experiments()}
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise OnelayerError(f"there is no experiment '{unknown[0]}'; choose from {', '.join(known)}")
    return tuple(item for item in known.values() if not keys or item.key in keys)
