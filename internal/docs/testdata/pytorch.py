"""Runs the left column of docs/pytorch.md with PyTorch: a list of [section, [code, ...]] comes in as JSON, what the code did goes out.

The names have the numbers that pytorch.go gives them. A piece of code that is not Python by itself is in ALONE.
"""
import inspect
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh as make_mesh
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

torch.set_num_threads(1)
RANKS = 8

# Code that names a thing, is a part of a line, or needs another library.
ALONE = {
    "F.cross_entropy(up(x), labels)", "LigerFusedLinearCrossEntropyLoss", "register_buffer", "torchinfo.summary(model)", "get_peft_model(model, LoraConfig(r=8))",
    "convert_to_float8_training(model, config=...)", "nn.Sequential(a, nn.ReLU(), b)", "class Model(nn.Module)", "model.named_parameters()",
    "no_sync()", "eps", "weight_decay", "update_parameters(model)", "load_state_dict", "check_for_nan_in_loss",
    "clip_grad_norm_(…, error_if_nonfinite=True)", "Dataset.__len__", "nn.init.normal_(p, 0, 0.02)", "__getitem__", "set_epoch(1)", "init_process_group()", "destroy_process_group()",
    "torchrun --nproc-per-node 4 train.py", "work.wait()", "batch_isend_irecv", "broadcast_object_list", "async_op=True", "mesh[\"tp\"]",
    'ImageFolder("photos", Compose([Resize((64, 64)), ToTensor()]))', 'pandas.read_csv("t.csv")', 'pandas.read_json("t.jsonl", lines=True)',
    'pandas.read_parquet("t")', "random_split(set, [0.5, 0.5])", "Subset(set, [0])", "WeightedRandomSampler(weights, 150)",
    "StandardScaler", "Compose([RandomResizedCrop(64), RandomHorizontalFlip()])", "SimpleImputer", "OneHotEncoder", "MulticlassAccuracy", "MulticlassF1Score", "BinaryAUROC",
    "ReduceLROnPlateau(opt, patience=3)", "scheduler.get_last_lr()[0]",
}


def numbers(n, factor, add):
    return torch.tensor([factor * ((i * 7 + 3) % 11 - 5) + add for i in range(n)], dtype=torch.float32)


class MLP(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.up, self.down = nn.Linear(d, h), nn.Linear(h, d)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def fresh(section, rank):
    """The names for one piece of code."""
    x, y, z = numbers(6, 0.25, 0).reshape(2, 3), numbers(6, -0.5, 0.125).reshape(2, 3), numbers(48, 0.25, 0.5).reshape(2, 3, 8)
    if section == "torch.distributed":
        x, y, z = (numbers(n * 3, f, rank).reshape(n, 3) for n, f in ((RANKS, 0.25), (RANKS, -0.5), (RANKS * RANKS, 0.25)))
    model = MLP(3, 4)
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(numbers(p.numel(), 0.125, i / 8).reshape(p.shape))
    params = list(model.parameters())
    labels = torch.tensor([[2], [0]])
    if section == "Layers and losses":
        labels = labels.reshape(2)
    if section == "Autograd":
        x.requires_grad_()
    e = dict(x=x, y=y, z=z, labels=labels, logits=numbers(10, 0.25, 0).reshape(2, 5), model=model, params=params, p=params[0],
             opt=torch.optim.AdamW(params, lr=0.1, weight_decay=0), device="cpu", f=F.relu,
             set=TensorDataset(numbers(450, 0.25, 0).reshape(150, 3), torch.zeros(150, dtype=torch.int64)),
             init_device_mesh=lambda device, *a, **k: make_mesh("cpu", *a, **k))
    e["loss"] = F.mse_loss(model(x), y)
    if section == "Optimizers":
        e["loss"].backward()
        clip_grad_norm_(params, 1.0)
    if section == "Data":
        e["DistributedSampler"] = lambda s: DistributedSampler(s, num_replicas=2, rank=0)
    return {**globals(), **e}


def value(v):
    """The numbers of a result."""
    if isinstance(v, torch.Tensor):
        return [v.detach().to(torch.float64).reshape(-1).tolist()]
    if isinstance(v, torch.dtype):
        return [str(v).removeprefix("torch.")]
    if isinstance(v, nn.Module):
        return [[p.numel() for p in v.parameters()]]
    if isinstance(v, DataLoader):
        return [[len(b[0]) for b in v]]
    if isinstance(v, (int, float)):
        return [v]
    if isinstance(v, (list, tuple)) and all(value(x) is not None for x in v):
        return [value(x) for x in v]
    if hasattr(v, "tolist"):
        return [v.reshape(-1).tolist()]
    return None


def run(section, code, rank=0):
    e = fresh(section, rank)
    before = {n: e[n].detach().clone() for n in ("x", "y", "p")}
    got = None
    try:
        got = eval(code, e)
    except SyntaxError:
        exec(code + "\n    pass" if code.endswith(":") else code, e)
    if isinstance(got, torch.optim.Optimizer):
        for _ in range(3):
            got.zero_grad()
            F.mse_loss(e["model"](e["x"]), e["y"]).backward()
            got.step()
    if hasattr(got, "wait"):
        got.wait()
    after = {n: e[n].detach().reshape(-1).tolist() for n in before if not torch.equal(e[n].detach(), before[n])}
    if e["p"].grad is not None and section == "Autograd":
        after["grad"] = e["p"].grad.reshape(-1).tolist()
    return {"Value": value(got), "After": after}


def useful(r):
    return r["Value"] is not None or r["After"]


def on_rank(rank, codes, store, queue):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
    out = {}
    for code in codes:
        only = {"dist.send": 0, "dist.recv": 1}.get(code.split("(")[0], rank)
        if only == rank:
            result = run("torch.distributed", code, rank)
            if not (code.startswith("dist.reduce(") and rank > 0):  # only the root's result is defined
                out[code] = result
    dist.barrier()
    if rank < 2:
        queue.put((rank, out))
    dist.destroy_process_group()


def on_ranks(codes):
    """What ranks 0 and 1 of RANKS did."""
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as d:
        ranks = [context.Process(target=on_rank, args=(r, codes, os.path.join(d, "store"), queue)) for r in range(RANKS)]
        for r in ranks:
            r.start()
        got = dict(queue.get() for _ in range(2))
        for r in ranks:
            r.join()
            assert r.exitcode == 0, r.exitcode
    return {c: [got[r][c] for r in (0, 1) if c in got[r]] for c in codes}


def bound(p):
    """The bound of a uniform initialization, to one digit."""
    return float(f"{p.detach().abs().max().item():.1g}")


def defaults():
    """PyTorch's defaults by the names that pytorch.go and the page give them."""
    adamw, sgd = (o([nn.Parameter(torch.zeros(1))]).defaults for o in (torch.optim.AdamW, torch.optim.SGD))
    batch, scaler = nn.BatchNorm2d(2), inspect.signature(torch.amp.GradScaler).parameters
    attention = nn.MultiheadAttention(64, 8)
    sampler = DistributedSampler(list(range(10)), num_replicas=4, rank=0)
    return {
        "learning rate of AdamW": adamw["lr"],
        "weight decay of AdamW": adamw["weight_decay"],
        "learning rate of SGD": sgd["lr"],
        "momentum of SGD": sgd["momentum"],
        "gradients that are not finite are an error": inspect.signature(clip_grad_norm_).parameters["error_if_nonfinite"].default,
        "first scale of a GradScaler": scaler["init_scale"].default,
        "epsilon of LayerNorm": nn.LayerNorm(2).eps,
        "epsilon of RMSNorm (float32)": nn.RMSNorm(2).eps or torch.finfo(torch.float32).eps,
        "epsilon of GroupNorm": nn.GroupNorm(1, 2).eps,
        "epsilon of BatchNorm2d": batch.eps,
        "momentum of BatchNorm2d": batch.momentum,
        "largest initial weight of a Linear, 10000 features": bound(nn.Linear(10000, 16).weight),
        "largest initial weight of a Conv2d, 10000 channels of 1 pixel": bound(nn.Conv2d(10000, 16, 1).weight),
        "deviation of an Embedding's initial weights": round(nn.Embedding(1000, 100).weight.std().item(), 1),
        "largest initial bias of an attention's queries, 64 features": bound(attention.in_proj_bias),
        "the first dimension of an attention's input is the batch": attention.batch_first,
        "label that a cross-entropy ignores": nn.CrossEntropyLoss().ignore_index,
        "a loader of one process shuffles": isinstance(DataLoader([1]).sampler, torch.utils.data.RandomSampler),
        "a loader drops the last batch": DataLoader([1]).drop_last,
        "a sampler for several ranks shuffles": sampler.shuffle,
        "samples that 4 ranks read of 10": sampler.total_size,
        "seconds until a collective times out": dist.distributed_c10d.default_pg_timeout.total_seconds(),
    }


def main():
    out, failed = {}, []
    for section, codes in json.load(sys.stdin):
        codes = [c for c in codes if c not in ALONE]
        if section == "torch.distributed":
            got = on_ranks(codes)
        elif section == "Parallel training":
            got = {}
        else:
            got = {}
            for c in codes:
                try:
                    got[c] = [run(section, c)]
                except Exception as err:
                    failed.append(f"{c}: {type(err).__name__}: {err}")
        out.update({c: [x for x in r] for c, r in got.items() if any(useful(x) for x in r)})
    if failed:
        sys.exit("\n".join(failed))
    json.dump({"Torch": torch.__version__.split("+")[0], "Ran": out, "Defaults": defaults()}, sys.stdout)


main()
