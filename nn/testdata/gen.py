"""Makes nn.json, what PyTorch computes for the layers, activations and losses of package nn.

Run in this folder, with PyTorch 2.15:  python gen.py

Inputs are not stored: both sides make them by value(). All results are float64.
"""
import json
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def value(salt, *shape, scale=1.0):
    """Numbers in [-scale, scale), the same as the Go test's value()."""
    n = math.prod(shape)
    v = [(((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1) * scale for i in range(n)]
    return torch.tensor(v).reshape(shape)


def labels(salt, classes, *shape):
    n = math.prod(shape)
    return torch.tensor([(i * 7 + salt * 3) % classes for i in range(n)]).reshape(shape)


def flat(t):
    return [float(x) for x in t.detach().reshape(-1)]


def fill(module, salt=100):
    """Gives the parameters values, the i-th one those of salt + i."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(value(salt + i, *p.shape, scale=0.5))
    return module


def case(x, f, params=()):
    """f's output, and the gradients of sum(output * value(2)) by x and the parameters."""
    x = x.clone().requires_grad_(x.is_floating_point())
    y = f(x)
    (y * value(2, *y.shape)).sum().backward()
    grads = {} if x.grad is None else {"input": flat(x.grad)}
    grads.update({name: flat(p.grad) for name, p in params})
    return {"y": flat(y), "grads": grads}


def module(x, m):
    fill(m)
    return case(x, m, m.named_parameters())


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class MLP(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.up, self.down = nn.Linear(d, h), nn.Linear(h, d)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(d), Attention(d, heads)
        self.norm2, self.mlp = nn.RMSNorm(d, eps=1e-5), MLP(d, 2 * d)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab, d, layers, heads, t):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(t, d)
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def gpt():
    """A step of a small transformer with tied embeddings, and the parameters after three steps of AdamW."""
    m = fill(GPT(7, 8, 2, 2, 5))
    ids, y = labels(1, 7, 3, 5), labels(2, 7, 3, 5)
    decay = [p for p in m.parameters() if p.dim() > 1]
    rest = [p for p in m.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)
    out = {"names": [n for n, _ in m.named_parameters()], "losses": [], "norms": []}
    for step in range(3):
        opt.zero_grad()
        loss = F.cross_entropy(m(ids).flatten(0, 1), y.flatten())
        loss.backward()
        if step == 0:
            out["grads"] = {n: flat(p.grad) for n, p in m.named_parameters()}
        out["norms"].append(float(nn.utils.clip_grad_norm_(m.parameters(), 0.5)))
        out["losses"].append(float(loss.detach()))
        opt.step()
    out["after"] = {n: flat(p) for n, p in m.named_parameters() if n in ("tok.weight", "blocks.1.attn.qkv.bias", "norm.weight")}
    return out


def loss_cases():
    x, y = value(1, 4, 5, scale=3), labels(1, 5, 4)
    some = y.clone()
    some[1] = -100
    two = value(3, 4, 5)
    prob = (two + 1) / 2
    return {
        "cross_entropy": case(x, lambda x: F.cross_entropy(x, y)),
        "cross_entropy_smooth": case(x, lambda x: F.cross_entropy(x, y, label_smoothing=0.1)),
        "cross_entropy_ignore": case(x, lambda x: F.cross_entropy(x, some, ignore_index=-100)),
        "cross_entropy_ignore_smooth": case(x, lambda x: F.cross_entropy(x, some, ignore_index=-100, label_smoothing=0.2)),
        "mse": case(x, lambda x: F.mse_loss(x, two)),
        "bce": case(x, lambda x: F.binary_cross_entropy_with_logits(x, prob)),
        "l1": case(x, lambda x: F.l1_loss(x, two)),
        "huber": case(x, lambda x: F.huber_loss(x, two, delta=0.75)),
        "smooth_l1": case(x, lambda x: F.smooth_l1_loss(x, two, beta=1.5)),
        "kl_div": case(x, lambda x: F.kl_div(x.log_softmax(-1), F.relu(two), reduction="batchmean")),
    }


def main():
    x, wide = value(1, 3, 4, scale=2), value(1, 3, 7, scale=6)
    cases = {
        "linear": module(x, nn.Linear(4, 5)),
        "linear_nobias": module(value(1, 2, 3, 4), nn.Linear(4, 5, bias=False)),
        "embedding": module(labels(1, 6, 2, 4), nn.Embedding(6, 3)),
        "layer_norm": module(x, nn.LayerNorm(4)),
        "layer_norm_nobias": module(x, nn.LayerNorm(4, bias=False)),
        "layer_norm_plain": module(x, nn.LayerNorm(4, elementwise_affine=False)),
        "rms_norm": module(x, nn.RMSNorm(4, eps=1e-5)),
        "relu": case(wide, F.relu),
        "gelu": case(wide, F.gelu),
        "gelu_tanh": case(wide, lambda x: F.gelu(x, approximate="tanh")),
        "silu": case(wide, F.silu),
        "tanh": case(wide, torch.tanh),
        "sigmoid": case(wide, torch.sigmoid),
        "sequential": module(x, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))),
        "mlp": module(x, MLP(4, 9)),
        "attention": module(value(1, 2, 5, 6), Attention(6, 3)),
        "attention_one": module(value(1, 1, 1, 4), Attention(4, 1)),
    }
    with open("nn.json", "w") as f:
        json.dump({"cases": cases, "losses": loss_cases(), "gpt": gpt()}, f, separators=(",", ":"))
        f.write("\n")


main()
