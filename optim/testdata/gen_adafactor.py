"""Makes adafactor.json, what torch.optim.Adafactor does.

Run in this folder, with PyTorch 2.15:  python gen_adafactor.py
"""
import json
import math

import torch

torch.set_num_threads(1)
STEPS, SHAPES = 12, [(6, 4), (3,), (2, 3, 5), (4, 4), ()]
KINDS = {
    "default": {},
    "decay": {"lr": 0.3, "weight_decay": 0.1, "beta2_decay": -0.6, "d": 1.5, "eps": (1e-4, 0.2)},
    "small_d": {"lr": 0.05, "d": 1.0, "eps": (0.3, 1e-3)},
}


def value(salt, *shape):
    """Numbers in [-1, 1), the same as the Go test's value()."""
    v = [((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1 for i in range(math.prod(shape))]
    return torch.tensor(v, dtype=torch.float64).reshape(shape)


def run(dtype, **config):
    """The parameters after steps 1, 7 and 12. The fourth one has no gradient in every third step."""
    ps = [torch.nn.Parameter(value(i, *s).to(dtype)) for i, s in enumerate(SHAPES)]
    opt, out = torch.optim.Adafactor(ps, **config), {}
    for step in range(STEPS):
        for i, p in enumerate(ps):
            p.grad = None if i == 3 and step % 3 == 0 else value(1000 + 10 * step + i, *p.shape).to(dtype) + p.detach() / 8
        opt.step()
        if step + 1 in (1, 7, STEPS):
            out[str(step + 1)] = [float(x) for p in ps for x in p.detach().reshape(-1)]
    return {"params": out}


types = {"float64": torch.float64, "float32": torch.float32}
kinds = {k: {name: run(d, **c) for name, d in types.items()} for k, c in KINDS.items()}
with open("adafactor.json", "w") as f:
    json.dump(kinds, f, indent=1)
    f.write("\n")
