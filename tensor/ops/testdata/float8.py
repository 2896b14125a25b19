"""Makes float8.json: a linear layer in 8-bit floats and its gradients, as torchao's Float8Linear scales them.

Run in this folder, with PyTorch 2.15:  python float8.py

Scaled operands are rounded by PyTorch's own types; products are torch._scaled_mm's, of numbers that were made float32 again.
Inputs are not stored: both sides make them by value().
"""
import json
import math

import torch

torch.set_num_threads(1)
E4M3, E5M2, EPS = torch.float8_e4m3fn, torch.float8_e5m2, 1e-12


def value(salt, *shape, scale=1.0):
    """Numbers in [-scale, scale), the same as the Go test's value()."""
    n = math.prod(shape)
    v = [(((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1) * scale for i in range(n)]
    return torch.tensor(v, dtype=torch.float64).reshape(shape)


def rounded(x, dtype, dims):
    """x in 8-bit floats, made float32 again, and the inverse scales: one along dims."""
    most = torch.finfo(dtype).max
    amax = x.abs().amax(dims, keepdim=True).to(torch.float64)
    scale = (most / torch.clamp(amax, min=EPS)).to(torch.float32)
    return torch.clamp(x.float() * scale, -most, most).to(dtype).float(), scale.reciprocal()


def product(a, a_dtype, b, b_dtype, rowwise):
    """a [m,k] times b [k,n]."""
    x, xs = rounded(a, a_dtype, 1 if rowwise else (0, 1))
    y, ys = rounded(b, b_dtype, 0 if rowwise else (0, 1))
    return ((x @ y) * xs * ys).to(a.dtype)


def flat(t):
    return [float(f"{v:.9g}") for v in t.float().reshape(-1)]


out = {}
for name, dtype in ("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16):
    x = value(1, 16, 32, scale=3)
    x[:, 5] *= 30  # a feature that is an outlier
    x[7] = 0
    x, w, g = x.to(dtype), value(2, 16, 32, scale=0.2).to(dtype), value(3, 16, 16, scale=1e-3).to(dtype)
    for recipe in "PerTensor", "PerRow":
        rowwise = recipe == "PerRow"
        dw = g.T @ x if rowwise else product(g.T, E5M2, x, E4M3, False)
        out[f"{name} {recipe}"] = {
            "y": flat(product(x, E4M3, w.T, E4M3, rowwise)),
            "dx": flat(product(g, E5M2, w, E4M3, rowwise)),
            "dw": flat(dw),
        }
with open("float8.json", "w") as file:
    json.dump(out, file)
