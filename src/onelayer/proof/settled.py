"""Operations on plain tensors that every machine does alike, as a list: what is not on it is enclosed or refused.

What moves, selects or compares given numbers rounds nothing. Arithmetic rounds once and correctly, and so alike. On
integers and bools whole results are exact. A sum, an elementary function, a square root (vector libraries err by more
than half a unit), several steps that a kernel may fuse, a random number: those are other numbers on another machine, in
another batch or on another day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from onelayer.taylor.registry import bare

# What a tensor says of itself, and what prepares it for autograd.
ASKED = """
    shape size dim ndim ndimension dim_order numel nelement len stride storage_offset data_ptr const_data_ptr
    element_size itemsize nbytes dtype device layout name get_device type format repr str hash deepcopy item
    tolist bool int float long index contains iter reversed is_complex is_conj is_contiguous is_cpu is_cuda
    is_floating_point is_inference is_leaf is_meta is_mps is_neg is_nested is_nonzero is_pinned is_quantized
    is_same_size is_set_to is_shared is_signed is_sparse is_sparse_csr is_mkldnn is_xla is_xpu is_ipu is_maia is_mtia
    is_vulkan is_tensor is_grad_enabled requires_grad requires_grad_ retain_grad retains_grad grad grad_fn grad_dtype
    output_nr volatile _grad _grad_fn _base _version _is_view _backward_hooks _post_accumulate_grad_hooks
    register_hook _set_grad_enabled set_grad_enabled result_type can_cast promote_types broadcast_shapes _assert_async
    _functional_assert_async set get_default_dtype get_default_device
    sym_int sym_float storage untyped_storage
"""
# Numbers where they were not, and numbers that are given.
MOVED = """
    H T mH mT adjoint alias_copy as_strided as_strided_copy as_strided_scatter atleast_1d atleast_2d atleast_3d
    block_diag broadcast_tensors broadcast_to cartesian_prod cat channel_shuffle chunk clone column_stack combinations
    complex constant_ constant_pad_nd contiguous conj conj_physical copy_ cpu cuda data detach detach_ detach_copy
    diag diag_embed diagflat diagonal diagonal_copy diagonal_scatter dsplit dstack expand expand_as expand_copy eye
    fft_fftshift fft_ifftshift fill fill_ fill_diagonal_ flatten flip fliplr flipud from_numpy full full_like gather
    getitem hsplit hstack imag index_fill index_fill_ index_select linalg_diagonal masked_fill masked_fill_
    masked_scatter masked_scatter_ masked_select meshgrid movedim narrow narrow_copy native_channel_shuffle new_full
    new_ones new_tensor new_zeros ones ones_like permute permute_copy pin_memory pixel_shuffle pixel_unshuffle ravel
    real repeat repeat_interleave reshape reshape_as resolve_conj resolve_neg roll rot90 row_stack scalar_tensor
    select select_copy select_scatter share_memory_ slice_copy slice_inverse slice_scatter split split_copy
    split_with_sizes split_with_sizes_copy squeeze squeeze_ squeeze_copy stack t t_ t_copy take take_along_dim tensor
    as_tensor asarray tensor_split tile transpose transpose_ transpose_copy tril tril_ tril_indices triu triu_
    triu_indices type_as unbind unbind_copy unflatten unfold unfold_copy unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_ unsqueeze_copy view view_as view_as_complex view_as_complex_copy
    view_as_real view_as_real_copy view_copy vsplit vstack where zero_ zeros zeros_like one_hot unravel_index
    swapaxes_ swapdims_ eq ne equal not_equal pad
"""
# Real numbers: casts, comparisons, choices among given numbers, whole parts.
CHOSEN = """
    to double half bfloat16 short char byte ge gt le lt isfinite isinf isnan isneginf isposinf isreal isin signbit all
    any count_nonzero nonzero nonzero_static argwhere logical_and logical_not logical_or logical_xor abs neg sign sgn
    positive pos relu relu6 clamp clamp_min clamp_max hardtanh threshold hardshrink maximum minimum fmax fmin max min
    amax amin aminmax argmax argmin msort unique unique_consecutive searchsorted bucketize max_pool1d max_pool2d
    max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d heaviside copysign nextafter nan_to_num floor ceil trunc fix frac frexp
"""
# Arithmetic: one correct rounding each, unless the result is below the normal range and flushed to zero elsewhere.
SINGLE = """
    add sub mul div radd rsub rmul rdiv square reciprocal outer ger diff
"""
# Integers and bools alone.
WHOLE = """
    sum prod cumsum cumprod matmul linear einsum mean addmm tensordot inner vdot trace pow float_power remainder fmod
    mod floor_divide floordiv rpow rmod rfloordiv rmatmul gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_not
    bitwise_left_shift bitwise_right_shift lshift rshift rlshift rrshift xor ror rxor isclose allclose bincount
    setitem index_add scatter_add scatter cross kron nansum numpy array index_copy index_put
"""
# How Python writes an operation into its left operand.
INTO = {
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "idiv": "div",
    "iand": "logical_and",
    "ior": "logical_or",
    "ixor": "bitwise_xor",
    "ilshift": "lshift",
    "irshift": "rshift",
    "imod": "mod",
    "ifloordiv": "floordiv",
    "ipow": "pow",
}

_MOVES = frozenset((ASKED + MOVED).split())
_CHOSEN = frozenset(CHOSEN.split())
_SINGLE = frozenset(SINGLE.split())
_WHOLE = frozenset(WHOLE.split())
Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


def is_settled(name: str, args: Arguments, kwargs: Keywords) -> bool:
    """Whether this operation on plain tensors (its name in the registry) has one result on every machine."""
    if name in _MOVES:
        return True
    given = tensors((*args, *kwargs.values()))
    # Complex numbers are multiplied in several steps, sparse ones add up; neither has an enclosure.
    if any(tensor.is_complex() or tensor.is_quantized or tensor.layout != torch.strided for tensor in given):
        return False
    base = _base(name)
    if base in _WHERE:
        return _WHERE[base](args, kwargs)
    return base in _CHOSEN or base in _SINGLE


def is_flushed(name: str, result: Any) -> bool:
    """Whether a result of arithmetic is none on machines that flush what is below the normal range to zero."""
    if _base(name) not in _SINGLE:
        return False
    return any(_is_subnormal(tensor) for tensor in tensors(result) if tensor.is_floating_point())


def _is_subnormal(x: Tensor) -> bool:
    least = torch.finfo(x.dtype).tiny
    return bool(((x != 0) & (x > -least) & (x < least)).any())


def is_whole(name: str, args: Arguments, kwargs: Keywords) -> bool:
    """Whether an operation is exact where its operands and its result are integers and bools, as the operands are."""
    given = list(tensors((*args, *kwargs.values())))
    return bool(given) and all(_counts(tensor) for tensor in given) and _base(name) in _WHOLE


def makes_whole(result: Any) -> bool:
    """Whether all tensors among results hold integers and bools."""
    return all(_counts(tensor) for tensor in tensors(result))


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors among arguments or results, in lists too."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def _counts(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)


@cache
def _base(name: str) -> str:
    """The operation that one in place does: ``add`` of ``add_`` and ``iadd``."""
    name = INTO.get(name, name)
    return bare(name[:-1]) if name.endswith("_") else name


def _unscaled(args: Arguments, kwargs: Keywords) -> bool:
    """a + alpha b is one rounding where the product is exact."""
    return kwargs.get("alpha", 1) in (1, -1) and len(args) <= 2


def _undivided(args: Arguments, kwargs: Keywords) -> bool:
    return kwargs.get("rounding_mode") is None


def _to_integers(args: Arguments, kwargs: Keywords) -> bool:
    return kwargs.get("decimals", 0) == 0 and len(args) <= 1


def _looked_up(args: Arguments, kwargs: Keywords) -> bool:
    """Rows that are copied, and not normalised first."""
    return kwargs.get("max_norm") is None and len(args) < 4


def _counted(args: Arguments, kwargs: Keywords) -> bool:
    """Integers from integers; steps of a fraction are multiplied out in several roundings."""
    numbers = (*args, *(kwargs.get(key, 0) for key in ("start", "end", "step")))
    return all(isinstance(number, int) for number in numbers)


def _at_rest(args: Arguments, kwargs: Keywords) -> bool:
    """A dropout that is told not to draw."""
    told = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return told is False


def _one_number(args: Arguments, kwargs: Keywords) -> bool:
    """One number at all places: no matter which of two that fall on one place is written last."""
    value = kwargs.get("value", kwargs.get("src", args[-1] if len(args) == 4 else None))
    return isinstance(value, int | float) and "reduce" not in kwargs


def _apart(args: Arguments, kwargs: Keywords) -> bool:
    """No two numbers are alike, so that there is one order: which of two comes first is up to the machine."""
    x = args[0] if args else kwargs["input"]
    return kwargs.get("stable") is True or torch.unique(x).numel() == x.numel()


def _written_once(args: Arguments, kwargs: Keywords) -> bool:
    """A place of its own for every number, or one number for all: which of two is written last is up to the machine."""
    _, index, value = args
    single = not isinstance(value, Tensor) or value.numel() == 1
    return single or not _has_places(index)


def _has_places(index: Any) -> bool:
    """Whether an index lists places, where two may be the same; slices, numbers and masks do not."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list) or (isinstance(part, Tensor) and part.dtype != torch.bool) for part in parts)


_WHERE: dict[str, Callable[[Arguments, Keywords], bool]] = {
    **dict.fromkeys(("add", "sub", "radd", "rsub"), _unscaled),
    "div": _undivided,
    "round": _to_integers,
    "embedding": _looked_up,
    **dict.fromkeys(("arange", "range"), _counted),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _at_rest),
    "scatter": _one_number,
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin"), _apart),
    "setitem": _written_once,
}
