"""Makes optim.json, what PyTorch's optimizers, averages and clipping do.

Run in this folder, with PyTorch 2.15:  python gen.py

Parameters and gradients at the start are not stored: both sides make them by value().
"""
import json
import math

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_num_threads(1)
STEPS, SHAPES = 20, [(4, 3), (3,), (2, 2)]


def value(salt, *shape, dtype=torch.float64):
    """Numbers in [-1, 1), the same as the Go test's value()."""
    n = math.prod(shape)
    v = [((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1 for i in range(n)]
    return torch.tensor(v, dtype=torch.float64).to(dtype).reshape(shape)


def flat(ps):
    return [float(x) for p in ps for x in p.detach().reshape(-1)]


def run(make, dtype, clip=0.0, decay=None):
    """The parameters after steps 1, 7 and 20, or their averages. The last one has no gradient in every third step, from step 0 on."""
    ps = [torch.nn.Parameter(value(i, *s, dtype=dtype)) for i, s in enumerate(SHAPES)]
    opt = make(ps)
    model = torch.nn.ParameterList(ps)
    if decay is not None:
        averages = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    out, norms = {}, []
    for step in range(STEPS):
        for i, p in enumerate(ps):
            p.grad = value(1000 + 10 * step + i, *p.shape, dtype=dtype) + p.detach() / 8
        if step % 3 == 0:
            ps[-1].grad = None
        if clip:
            norms.append(float(torch.nn.utils.clip_grad_norm_(ps, clip)))
        opt.step()
        if decay is not None:
            averages.update_parameters(model)
        if step + 1 in (1, 7, STEPS):
            out[str(step + 1)] = flat(ps if decay is None else list(averages.module))
    return {"params": out, "norms": norms} if clip else {"params": out}


SETS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.01),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_decay": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    "adam_beta": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.0, 0.9)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.01),
    "adamw_groups": lambda p: torch.optim.AdamW(
        [{"params": [p[0], p[2]], "weight_decay": 0.1}, {"params": [p[1]], "lr": 0.002, "weight_decay": 0.0}],
        lr=0.02, betas=(0.9, 0.95), eps=1e-6),
}


def main():
    sets = {}
    for name, make in SETS.items():
        sets[name] = {"float64": run(make, torch.float64), "float32": run(make, torch.float32)}
    sets["sgd_clip"] = {"float64": run(SETS["sgd"], torch.float64, 0.9)}
    sets["adamw_clip"] = {"float64": run(SETS["adamw"], torch.float64, 2.2)}
    averages = {}
    for decay in ("0", "0.3", "0.9", "0.999"):
        averages[decay] = {d: run(SETS["adamw"], t, decay=float(decay)) for d, t in (("float64", torch.float64), ("float32", torch.float32))}
    with open("optim.json", "w") as f:
        json.dump({"sets": sets, "averages": averages}, f, separators=(",", ":"))
        f.write("\n")


main()
