"""Makes attention.json, what PyTorch's scaled_dot_product_attention computes with the masks of package tensor.

Run in this folder, with PyTorch 2.15:  python attention.py

Inputs are not stored: both sides make them by value(). All results are float64.
"""
import json
import math

import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

BATCH, TQ, TK, HEADS, KV, HD = 2, 4, 5, 4, 2, 2
LENGTHS = torch.tensor([3, 5])
QDOCS = torch.tensor([[0, 0, 1, 2], [1, 1, 1, 4]])
KDOCS = torch.tensor([[0, 0, 1, 1, 2], [1, 1, 1, 1, 2]])
CASES = [
    ("none", None, False, False), ("causal", 1, False, False), ("before", -2, False, False), ("lengths", None, True, False),
    ("docs", None, False, True), ("causal lengths", 1, True, False), ("causal docs", 1, False, True), ("all", 0, True, True),
]


def value(salt, *shape):
    """Numbers in [-1, 1), the same as the Go test's."""
    v = [((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1 for i in range(math.prod(shape))]
    return torch.tensor(v).reshape(shape)


def sees(offset, lengths, docs):
    """Which keys a query sees, [batch, 1, TQ, TK]."""
    i, j = torch.arange(TQ)[:, None], torch.arange(TK)[None, :]
    m = torch.ones(BATCH, TQ, TK, dtype=torch.bool)
    if offset is not None:
        m = m & (j <= i + offset)
    if lengths:
        m = m & (j < LENGTHS[:, None, None])
    if docs:
        m = m & (QDOCS[:, :, None] == KDOCS[:, None, :])
    return m[:, None]


def heads(x, n):
    return x.reshape(BATCH, -1, n, HD).transpose(1, 2)


def case(offset, lengths, docs):
    q, k, v = value(1, BATCH, TQ, HEADS * HD), value(2, BATCH, TK, KV * HD), value(3, BATCH, TK, KV * HD)
    for x in (q, k, v):
        x.requires_grad_()
    mask = sees(offset, lengths, docs)
    out = F.scaled_dot_product_attention(heads(q, HEADS), heads(k, KV), heads(v, KV), attn_mask=mask, enable_gqa=True)
    out = out.transpose(1, 2).reshape(BATCH, TQ, HEADS * HD)
    scores = heads(q, HEADS) @ heads(k, KV).repeat_interleave(HEADS // KV, 1).transpose(2, 3) / math.sqrt(HD)
    some = mask.any(3, keepdim=True)  # the sums of a query that sees no key are -inf
    lse = torch.where(mask | ~some, scores, -torch.inf).logsumexp(3).masked_fill(~some[..., 0], 0)
    ((out * value(4, *out.shape)).sum() + (lse * value(5, *lse.shape)).sum()).backward()
    flat = lambda t: [float(x) for x in t.detach().reshape(-1)]
    return {"out": flat(out), "lse": flat(lse), "grads": [flat(x.grad) for x in (q, k, v)]}


with open("attention.json", "w") as f:
    json.dump({name: case(*rest) for name, *rest in CASES}, f, separators=(",", ":"))
    f.write("\n")
