"""Makes schedules.json, what PyTorch's schedules do.

Run in this folder, with PyTorch 2.15:  python gen.py
"""
import json
import math

import torch
from torch.optim import lr_scheduler as sched


def rates(make, lr=0.4, steps=30):
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    s = make(opt)
    out = []
    for _ in range(steps):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    return out


def schedules():
    return {
        "linear": rates(lambda o: sched.LinearLR(o, 0.25, 0.75, 12)),
        "decay": rates(lambda o: sched.LinearLR(o, 1.0, 0.0, 30)),
        "cosine": rates(lambda o: sched.CosineAnnealingLR(o, 29, eta_min=0.04)),
        "step": rates(lambda o: sched.StepLR(o, 7, 0.3)),
        "warmup_cosine": rates(lambda o: sched.SequentialLR(
            o, [sched.LinearLR(o, 0.1, 1.0, 9), sched.CosineAnnealingLR(o, 20)], [10])),
    }


PLATEAU = [1, .9, .8999, .95, math.nan, .89995, .7, .71, .72, .7, .6999, .70001, .5, .6, .6, .6, .6, .6, .6, .6, .6, .6, .4, -.1] + 12 * [.6]


def plateaus():
    """What the learning rate is multiplied by after each of PLATEAU."""
    out = {}
    for name, sign, options in (("default", 1, {}), ("patience", 1, {"patience": 2, "factor": .5}),
                                ("threshold", 1, {"patience": 1, "threshold": .05}), ("max", -1, {"patience": 2, "mode": "max"})):
        opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)
        s = sched.ReduceLROnPlateau(opt, eps=0, **options)
        out[name] = []
        for x in PLATEAU:
            s.step(sign * x)
            out[name].append(opt.param_groups[0]["lr"])
    return {"values": [None if math.isnan(x) else x for x in PLATEAU], "factors": out}


with open("schedules.json", "w") as f:
    json.dump({"schedules": schedules(), "plateaus": plateaus()}, f, separators=(",", ":"))
    f.write("\n")
