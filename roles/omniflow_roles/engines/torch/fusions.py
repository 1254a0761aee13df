"""Fewer kernels for the same arithmetic on a GPU: parts of Hugging Face models, fused.

    RMSNorm            pow, mean, add, rsqrt, mul, cast, mul   ─▶ 1 kernel
    rotary positions   neg, cat, mul, mul, add, for q and k    ─▶ 1 kernel
    q, k, v; gate, up  a product each                          ─▶ 1 product

Written out they are a third of a decode step's kernels, and at small batches the time between kernels is what a step waits
for. A part is replaced only where it gives what the original gives, which is tried on random numbers when a model is loaded:
families differ (Gemma scales by 1 + weight), and the class's name says nothing of it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional

from omniflow_roles.engines.torch.siblings import families, share

logger = logging.getLogger(__name__)

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Of values around 1: a bfloat16 has 8 bits, and the fused norm rounds once where the original rounds twice."""


def fuse(model: Any) -> tuple[int, int]:
    """Replaces what can be in a model on a CUDA device. Returns how many norms and how many modules' rotary functions."""
    _join_linears(model)
    norms = sum(_fuse_norm(module) for module in model.modules() if type(module).__name__.endswith("RMSNorm"))
    homes = {type(module).__module__ for module in model.modules() if type(module).__name__.endswith("Attention")}
    rotations = sum(
        _fuse_rotation(sys.modules[name], next(model.parameters())) for name in homes if name in sys.modules
    )
    logger.info("fused %d norms, and the rotary positions of %d model files", norms, rotations)
    return norms, rotations


def _join_linears(model: Any) -> None:
    """Linears of the same input become one; those that are no plain linears any more (int8, LoRA) are left."""
    linears = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    for names in families(list(linears)):
        members = [linears[name] for name in names]
        has_bias = [member.bias is not None for member in members]
        if len(members) == 1 or len(set(has_bias)) > 1:
            continue
        joint = _joined(members, has_bias=has_bias[0])
        for name, sibling in zip(names, share(joint, members), strict=True):
            model.set_submodule(name, sibling)


@torch.inference_mode(False)
def _joined(members: list[nn.Linear], *, has_bias: bool) -> nn.Linear:
    weight = torch.cat([member.weight.detach() for member in members])
    joint = nn.Linear(1, 1, bias=False, device="meta")
    joint.out_features, joint.in_features = weight.shape
    joint.weight = nn.Parameter(weight, requires_grad=False)
    joint.bias = nn.Parameter(torch.cat([m.bias.detach() for m in members]), requires_grad=False) if has_bias else None
    return joint


def _fuse_norm(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if weight is None or epsilon is None:
        return False
    size = weight.shape

    def plain(hidden: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(hidden, size, weight, epsilon)

    probe = torch.randn(3, *size, dtype=weight.dtype, device=weight.device)
    with torch.inference_mode():
        if not _agree(plain(probe), module(probe)):
            return False
    module.forward = plain
    return True


def _fuse_rotation(home: Any, like: torch.Tensor) -> bool:
    """Of a modeling file: the layers call its function `apply_rotary_pos_emb` by name. One that is fused already counts."""
    original: Callable[..., Any] | None = getattr(home, "apply_rotary_pos_emb", None)
    if original is None:
        return False
    if getattr(original, "is_fused", False):
        return True
    q = torch.randn(1, 4, 3, 16, dtype=like.dtype, device=like.device)
    k = torch.randn(1, 2, 3, 16, dtype=like.dtype, device=like.device)
    half = torch.randn(1, 3, 8, dtype=like.dtype, device=like.device)
    cos, sin = torch.cat((half, half), -1), torch.cat((half.flip(-1), half.flip(-1)), -1)
    with torch.inference_mode():
        try:
            expected = original(q, k, cos, sin)
        except (TypeError, ValueError, RuntimeError):
            return False  # another signature, such as complex frequencies
        if not all(_agree(a, b) for a, b in zip(rotate(q, k, cos, sin), expected, strict=True)):
            return False

    def fused(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        is_plain = not args and not kwargs and q.shape[-1] == cos.shape[-1] and cos.dim() == 3 and q.shape[0] == 1
        is_plain = is_plain and q.is_cuda and q.stride(3) == k.stride(3) == 1
        return rotate(q, k, cos, sin) if is_plain else original(q, k, cos, sin, *args, **kwargs)

    fused.is_fused = True  # type: ignore[attr-defined]
    home.apply_rotary_pos_emb = fused
    return True


def _agree(fused: torch.Tensor, original: torch.Tensor) -> bool:
    if fused.shape != original.shape:
        return False
    tolerance = _TOLERANCE.get(original.dtype, 0.0)
    return bool(torch.allclose(fused.float(), original.float(), rtol=tolerance, atol=tolerance))


def rotate(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary positions of q and k [1, heads, tokens, size] by cos and sin [1, tokens, size], halves of a head as pairs."""
    tokens, size = q.shape[2], q.shape[3]
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    k_out = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    cos, sin = cos.contiguous(), sin.contiguous()
    heads = q.shape[1] + k.shape[1]
    _rotate[(tokens, heads)](
        q, k, cos, sin, q_out, k_out,
        q.stride(1), q.stride(2), k.stride(1), k.stride(2), tokens,
        query_heads=q.shape[1], size=size, half=size // 2, half_block=triton.next_power_of_2(size // 2),
        num_warps=1,
    )  # fmt: skip
    return q_out, k_out


@triton.jit
def _rotate(
    q, k, cos, sin, q_out, k_out,
    q_head, q_token, k_head, k_token, tokens,
    query_heads: tl.constexpr, size: tl.constexpr, half: tl.constexpr, half_block: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, half_block)
    is_in = lane < half
    if head < query_heads:
        source = q + head * q_head + token * q_token
        target = q_out + (head * tokens + token) * size
    else:
        source = k + (head - query_heads) * k_head + token * k_token
        target = k_out + ((head - query_heads) * tokens + token) * size
    low = tl.load(source + lane, mask=is_in, other=0.0)
    high = tl.load(source + half + lane, mask=is_in, other=0.0)
    cos_low = tl.load(cos + token * size + lane, mask=is_in, other=0.0)
    cos_high = tl.load(cos + token * size + half + lane, mask=is_in, other=0.0)
    sin_low = tl.load(sin + token * size + lane, mask=is_in, other=0.0)
    sin_high = tl.load(sin + token * size + half + lane, mask=is_in, other=0.0)
    tl.store(target + lane, low * cos_low - high * sin_low, mask=is_in)
    tl.store(target + half + lane, high * cos_high + low * sin_high, mask=is_in)
