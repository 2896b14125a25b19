"""Makes pictures.json, what PyTorch computes for the layers of package nn for pictures, and their gradients.

Run in this folder, with PyTorch 2.15:  python pictures.py

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


def case(dims, m, evaluate=False):
    """The output, the gradients of sum(output * value(2)), and what the buffers are behind it."""
    x = value(1, *dims, scale=2).requires_grad_()
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(value(100 + i, *p.shape, scale=0.5))
        for i, (name, b) in enumerate(m.named_buffers()):
            if b.dim():
                b.copy_(value(200 + i, *b.shape, scale=0.5) + 1)
    m.train(not evaluate)
    y = m(x)
    (y * value(2, *y.shape)).sum().backward()
    grads = {"input": flat(x.grad)} | {name: flat(p.grad) for name, p in m.named_parameters()}
    buffers = {name: flat(b) for name, b in m.named_buffers() if b.dim()}
    return {"dims": dims, "y": flat(y), "grads": grads, "buffers": buffers}


cases = {
    "conv2d": case([2, 3, 5, 7], nn.Conv2d(3, 4, 3)),
    "conv2d_nobias": case([2, 3, 5, 7], nn.Conv2d(3, 4, 2, bias=False)),
    "conv2d_padding": case([2, 2, 6, 5], nn.Conv2d(2, 3, 3, padding=1)),
    "conv2d_one": case([2, 5, 3, 3], nn.Conv2d(5, 2, 1)),
    "conv2d_stride": case([1, 3, 8, 9], nn.Conv2d(3, 2, 3, stride=(2, 3), padding=(0, 2))),
    "conv2d_dilation": case([2, 2, 9, 8], nn.Conv2d(2, 3, 3, padding=(3, 1), dilation=(2, 1))),
    "conv2d_groups": case([2, 4, 5, 5], nn.Conv2d(4, 6, 3, padding=1, groups=2)),
    "conv2d_depthwise": case([2, 3, 7, 6], nn.Conv2d(3, 3, 3, stride=2, padding=(1, 2), dilation=(1, 2), groups=3)),
    "conv1d": case([2, 3, 7], nn.Conv1d(3, 4, 3)),
    "conv1d_options": case([2, 4, 11], nn.Conv1d(4, 6, 3, stride=2, padding=3, dilation=2, groups=2)),
    "conv1d_nobias": case([3, 1, 1], nn.Conv1d(1, 2, 1, bias=False)),
    "conv_transpose2d": case([2, 3, 4, 5], nn.ConvTranspose2d(3, 4, 3)),
    "conv_transpose2d_nobias": case([1, 2, 3, 3], nn.ConvTranspose2d(2, 1, 2, bias=False)),
    "conv_transpose2d_stride": case([2, 2, 4, 3], nn.ConvTranspose2d(2, 3, 4, stride=(2, 3), padding=(1, 0), output_padding=(1, 2))),
    "conv_transpose2d_groups": case([1, 4, 3, 4], nn.ConvTranspose2d(4, 6, 3, stride=2, padding=(2, 1), dilation=(2, 1), groups=2)),
    "upsample": case([2, 3, 3, 5], nn.Upsample(scale_factor=2)),
    "upsample_bilinear": case([2, 2, 4, 3], nn.Upsample(scale_factor=3, mode="bilinear")),
    "max_pool2d": case([2, 3, 7, 5], nn.MaxPool2d(2)),
    "max_pool2d_overlap": case([2, 2, 7, 6], nn.MaxPool2d((3, 2), stride=(1, 2), padding=1)),
    "avg_pool2d": case([2, 3, 7, 5], nn.AvgPool2d(2)),
    "avg_pool2d_overlap": case([2, 2, 7, 6], nn.AvgPool2d((3, 2), stride=(1, 2), padding=1)),
    "batch_norm": case([3, 4, 3, 5], nn.BatchNorm2d(4)),
    "batch_norm_plain": case([3, 2, 3, 5], nn.BatchNorm2d(2, affine=False)),
    "batch_norm_eval": case([3, 4, 3, 5], nn.BatchNorm2d(4), evaluate=True),
    "group_norm": case([2, 6, 3, 5], nn.GroupNorm(3, 6)),
    "group_norm_one": case([2, 3, 3, 3], nn.GroupNorm(1, 3)),
    "network": case([2, 1, 9, 9], nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3),
                                                nn.GroupNorm(2, 6), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 3))),
}
with open("pictures.json", "w") as f:
    json.dump(cases, f, separators=(",", ":"))
    f.write("\n")
