"""Makes muon.json, what PyTorch's Muon does, with AdamW for the vector.

Run in this folder, with PyTorch 2.15:  python gen_muon.py

"bfloat16" is torch.optim.Muon, which iterates in bfloat16. "float64" is the same code with the iteration in float64.
"""
import inspect
import json
import math

import torch
from torch.optim import _muon

torch.set_num_threads(1)
STEPS, SHAPES = 20, [(6, 4), (3,), (4, 7), (4, 4)]
KINDS = {
    "original": {"lr": 0.02, "weight_decay": 0.1},
    "match_rms_adamw": {"lr": 0.01, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"},
    "no_nesterov": {"lr": 0.02, "weight_decay": 0.0, "momentum": 0.8, "nesterov": False},
}
in_bfloat16 = _muon._zeropower_via_newtonschulz
source = inspect.getsource(in_bfloat16)
assert "dtype=torch.bfloat16" in source
exec(source.replace("dtype=torch.bfloat16", "dtype=torch.float64"), _muon.__dict__)
in_float64 = _muon._zeropower_via_newtonschulz


def value(salt, *shape):
    """Numbers in [-1, 1), the same as the Go test's value()."""
    v = [((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1 for i in range(math.prod(shape))]
    return torch.tensor(v, dtype=torch.float64).reshape(shape)


def run(iterate, **muon):
    """The parameters after steps 1, 7 and 20. Rows 0 to 3 and 4 to 5 of the first one are matrices of their own."""
    _muon._zeropower_via_newtonschulz = iterate
    ps = [torch.nn.Parameter(value(i, *s)) for i, s in enumerate(SHAPES)]
    parts = [torch.nn.Parameter(ps[0].detach()[a:b].clone()) for a, b in ((0, 4), (4, 6))]
    opts = [torch.optim.Muon(parts + ps[2:], **muon), torch.optim.AdamW([ps[1]], lr=0.03, weight_decay=0.05)]
    out = {}
    for step in range(STEPS):
        g = [value(1000 + 10 * step + i, *s) for i, s in enumerate(SHAPES)]
        ps[1].grad, ps[2].grad, ps[3].grad = (g[i] + ps[i].detach() / 8 for i in (1, 2, 3))
        parts[0].grad, parts[1].grad = g[0][:4] + parts[0].detach() / 8, g[0][4:] + parts[1].detach() / 8
        for o in opts:
            o.step()
        if step + 1 in (1, 7, STEPS):
            out[str(step + 1)] = [float(x) for p in parts + ps[1:] for x in p.detach().reshape(-1)]
    return {"params": out}


kinds = {k: {"bfloat16": run(in_bfloat16, **c), "float64": run(in_float64, **c)} for k, c in KINDS.items()}
with open("muon.json", "w") as f:
    json.dump(kinds, f, indent=1)
    f.write("\n")
