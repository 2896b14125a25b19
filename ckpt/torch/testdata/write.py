"""Writes the fixtures beside it, with PyTorch 2.11 (CPU): python write.py

expect.json has, for each fixture, the bytes of every tensor in row-major order as hexadecimal digits.
"""

import json, os, shutil, tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

TYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
         torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.uint16: "U16", torch.float8_e4m3fn: "F8_E4M3",
         torch.complex64: "C64"}


def plain(x):
    x = x.full_tensor() if hasattr(x, "full_tensor") else x
    x = x.detach().contiguous()
    raw = bytes(x.reshape(-1).view(torch.uint8).tolist()) if x.numel() else b""
    return {"dtype": TYPES[x.dtype], "shape": list(x.shape), "hex": raw.hex()}


def tensors(prefix, tree, out):
    """All tensors below a tree, by the keys that lead to them."""
    if isinstance(tree, torch.Tensor):
        out["/".join(prefix)] = plain(tree)
    elif isinstance(tree, dict):
        for k, v in tree.items():
            tensors(prefix + [str(k)], v, out)
    return out


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


def train(m, opt, steps=2):
    for _ in range(steps):
        opt.zero_grad()
        m(torch.linspace(-1, 1, 12).reshape(4, 3)).square().sum().backward()
        opt.step()


def state():
    base = torch.arange(24, dtype=torch.float32) / 7
    return {
        "f32": base.reshape(4, 6).clone(), "bf16": (base[:6] * 3).to(torch.bfloat16), "f16": base[:3].half(), "f64": base[:4].double() / 3,
        "i64": torch.tensor([[1, -2], [3, 1 << 40]]), "i32": torch.tensor([-7], dtype=torch.int32), "i16": torch.tensor([-300], dtype=torch.int16),
        "i8": torch.tensor([-3, 4], dtype=torch.int8), "u8": torch.tensor([200], dtype=torch.uint8), "bool": torch.tensor([True, False, True]),
        "u16": torch.tensor([60000, 1], dtype=torch.uint16), "f8": torch.tensor([0.5, -1.5]).to(torch.float8_e4m3fn), "c64": torch.tensor([1 + 2j]),
        "transposed": base.reshape(4, 6).t(), "every.other": base[1::2], "window": base.reshape(4, 6)[1:3, 2:5], "permuted": base.reshape(2, 3, 4).permute(2, 0, 1),
        "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), "param": torch.nn.Parameter(base[:2].clone()),
    }


def worker(rank, ranks, folder, rendezvous):
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method="file://" + rendezvous)
    mesh = init_device_mesh("cpu", (ranks,))
    # A dict of dicts, with tensors cut along either dimension, and values that are no tensors.
    a = torch.arange(7 * 5, dtype=torch.float32).reshape(7, 5) / 3
    tree = {"model": {"rows": distribute_tensor(a, mesh, [Shard(0)]), "cols": distribute_tensor(a * 2, mesh, [Shard(1)]),
                      "whole": torch.ones(3, dtype=torch.bfloat16), "scalar": torch.tensor(4.5)}, "epoch": 3, "note": "as it is"}
    expect = {"tree%d" % ranks: tensors([], tree, {})}
    dcp.save(tree, checkpoint_id=os.path.join(folder, "tree%d" % ranks))
    for name, flat in ("fsdp%d" % ranks, False), ("flat%d" % ranks, True):
        if flat and ranks == 2:
            continue  # it is large: an archive for each number of each parameter
        m = torch.nn.Sequential(torch.nn.Linear(3, 1)) if flat else model()
        fully_shard(m, mesh=mesh)
        opt = torch.optim.AdamW(m.parameters(), lr=0.01)
        train(m, opt)
        ms, os_ = get_state_dict(m, opt, options=StateDictOptions(flatten_optimizer_state_dict=flat))
        expect[name] = tensors([], {"model": ms, "optim": os_}, {})
        dcp.save({"model": ms, "optim": os_}, checkpoint_id=os.path.join(folder, name))
    if rank == 0:
        json.dump(expect, open(os.path.join(folder, "expect%d.json" % ranks), "w"))
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    home = os.path.dirname(os.path.abspath(__file__))
    os.chdir(tempfile.mkdtemp())  # the names of folders come into the files
    folder = "."
    expect = {}

    def save(name, tree):
        torch.save(tree, os.path.join(folder, name))
        expect[name] = tensors([], tree, {})

    save("state.pt", state())
    save("module.pt", model().state_dict())
    m = model()
    opt = torch.optim.AdamW(m.parameters(), lr=0.01)
    train(m, opt)
    save("adamw.pt", {"model": m.state_dict(), "optimizer": opt.state_dict(), "epoch": 7, "note": "as it is", "bytes": b"\x00\xff", "none": None})
    m = model()
    opt = torch.optim.SGD(m.named_parameters(), lr=0.1, momentum=0.9)
    train(m, opt)
    save("sgd.pt", {"state_dict": m.state_dict(), "optimizer": opt.state_dict(), "ema": {"x": torch.ones(2)}})
    m = model()
    opt = torch.optim.AdamW([{"params": [m[0].weight, m[2].weight]}, {"params": [m[0].bias, m[2].bias], "weight_decay": 0.0}], lr=0.01)
    train(m, opt)
    save("groups.pt", {"model": m.state_dict(), "optimizer": opt.state_dict()})
    for ranks in 1, 2:
        mp.spawn(worker, (ranks, folder, os.path.abspath("meet%d" % ranks)), nprocs=ranks)
        part = "expect%d.json" % ranks
        expect.update(json.load(open(part)))
        os.remove(part)
    json.dump(expect, open("expect.json", "w"), sort_keys=True)
    for name in os.listdir("."):
        if not name.startswith("meet"):
            old = os.path.join(home, name)
            if os.path.isdir(old):
                shutil.rmtree(old)
            elif os.path.exists(old):
                os.remove(old)
            shutil.move(name, old)


if __name__ == "__main__":
    main()
