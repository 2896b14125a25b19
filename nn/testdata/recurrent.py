"""Makes recurrent.json, what PyTorch's LSTM and GRU compute, and their gradients.

Run in this folder, with PyTorch 2.15:  python recurrent.py

Inputs are not stored: both sides make them by value(). All results are float64.
"""
import json
import math

import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def value(salt, *shape, scale=1.0):
    """Numbers in [-scale, scale), the same as the Go test's value()."""
    n = math.prod(shape)
    v = [(((i * 7919 + salt * 104729 + 12345) % 2003) / 1001.5 - 1) * scale for i in range(n)]
    return torch.tensor(v).reshape(shape)


def flat(t):
    return [float(x) for x in t.detach().reshape(-1)]


def case(kind, batch, time, size, hidden, layers, both=False, states=False):
    """The output, the last states, and the gradients of the sum of all of them times value()."""
    m = kind(size, hidden, layers, batch_first=True, bidirectional=both)
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(value(100 + i, *p.shape, scale=0.5))
    x = value(1, batch, time, size, scale=2).requires_grad_()
    cells, leaves = layers * (2 if both else 1), {"input": x}
    lstm = kind is nn.LSTM
    if states:
        leaves["h"] = value(3, cells, batch, hidden).requires_grad_()
        if lstm:
            leaves["c"] = value(4, cells, batch, hidden).requires_grad_()
        y, ends = m(x, (leaves["h"], leaves["c"]) if lstm else leaves["h"])
    else:
        y, ends = m(x)
    ends = ends if lstm else (ends,)
    loss = (y * value(2, *y.shape)).sum()
    for i, e in enumerate(ends):
        loss = loss + (e * value(5 + i, *e.shape)).sum()
    loss.backward()
    grads = {n: flat(p.grad) for n, p in [*leaves.items(), *m.named_parameters()]}
    return {"dims": [batch, time, size], "hidden": hidden, "layers": layers, "both": both, "lstm": lstm, "states": states, "y": flat(y),
            "ends": [flat(e) for e in ends], "names": list(m.state_dict()), "grads": grads}


cases = {}
for kind in (nn.LSTM, nn.GRU):
    name = kind.__name__
    cases[name] = case(kind, 3, 5, 4, 3, 1)
    cases[name + ", 2 layers"] = case(kind, 2, 4, 3, 5, 2, states=True)
    cases[name + ", both directions"] = case(kind, 2, 3, 2, 3, 2, both=True, states=True)
    cases[name + ", one position"] = case(kind, 2, 1, 3, 2, 1)
with open("recurrent.json", "w") as f:
    json.dump(cases, f, separators=(",", ":"))
    f.write("\n")
