"""Makes expect.json: what the mixtures of experts of transformers compute, and their gradients.

Run in this folder:  python write.py

with torch 2.15.0 and transformers 5.23.0. Inputs are not stored: both sides make them by value(). All is in float64.
"""
import json
import math

import torch
from transformers import DeepseekV3Config, MixtralConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func

# Routers and the balance loss are computed in float32 by transformers, whatever the block's type: here in float64.
torch.float = torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

BATCH, TIME, FEATURES, HIDDEN, STEPS = 3, 5, 7, 5, 10
BALANCE, Z = 0.5, 0.25

mixtral = MixtralConfig(hidden_size=FEATURES, intermediate_size=HIDDEN, num_local_experts=8, num_experts_per_tok=2,
                        experts_implementation="eager")
deepseek = DeepseekV3Config(hidden_size=FEATURES, moe_intermediate_size=HIDDEN, n_routed_experts=12, num_experts_per_tok=3, n_group=3,
                            topk_group=2, n_shared_experts=2, norm_topk_prob=True, routed_scaling_factor=2.5, experts_implementation="eager")


def value(salt, *shape):
    """Numbers in [-1, 1), the same as the Go test's value()."""
    v = [((i * i * 31 + i * 7919 + salt * 104729) % 2003) / 1001.5 - 1 for i in range(math.prod(shape))]
    return torch.tensor(v).reshape(shape)


def parts(block, of):
    """of(parameter) of all parameters, under this module's names; gate_up_proj has two of ours."""
    gate, up = of(block.experts.gate_up_proj).chunk(2, dim=1)
    out = {"gate.weight": of(block.gate.weight), "experts.gate_proj": gate, "experts.up_proj": up, "experts.down_proj": of(block.experts.down_proj)}
    if hasattr(block, "shared_experts"):
        out |= {"shared_experts." + name: of(p) for name, p in block.shared_experts.named_parameters()}
    return out


def balance(block, x):
    """Transformers counts slots per token, which adds up to top_k; moe counts parts of all slots, which add up to 1."""
    logits, _, _ = block.gate(x)
    return load_balancing_loss_func((logits,), block.gate.num_experts, block.gate.top_k) / block.gate.top_k


def z(block, x):
    logits, _, _ = block.gate(x)
    return logits.logsumexp(-1).square().mean()


def chosen(block, x):
    return block.gate(x)[2].sort(-1)[0]


def check(block, x):
    """The bias and the groups change what is chosen, or the test would not see them."""
    gate = block.gate
    want, bias, groups = chosen(block, x), gate.e_score_correction_bias.clone(), gate.topk_group
    gate.e_score_correction_bias.zero_()
    assert not torch.equal(want, chosen(block, x))
    gate.e_score_correction_bias.copy_(bias)
    gate.topk_group = gate.num_group
    assert not torch.equal(want, chosen(block, x))
    gate.topk_group = groups


def flat(tensors):
    return {name: x.flatten().tolist() for name, x in tensors.items()}


def trained(block, aux=lambda block, x: 0.0):
    """Output and gradients of the first step, losses of STEPS steps of AdamW, and the output after them."""
    with torch.no_grad():
        for salt, p in enumerate(parts(block, lambda p: p.data).values()):
            p.copy_(value(salt, *p.shape))
        if hasattr(block, "shared_experts"):  # all below 0, so that scores of other groups must be -inf
            block.gate.e_score_correction_bias.copy_(value(50, 12) * 0.2 - 1.2)
            check(block, value(200, BATCH, TIME, FEATURES))
    opt = torch.optim.AdamW(block.parameters(), lr=1e-2, weight_decay=0.01)
    out = {"losses": []}
    for step in range(STEPS):
        x = value(200 + step, BATCH, TIME, FEATURES).requires_grad_()
        y = block(x)
        loss = (y * value(60, BATCH, TIME, FEATURES)).sum()
        opt.zero_grad()
        (loss + aux(block, x)).backward()
        if step == 0:
            out |= {"y": y.flatten().tolist(), "grads": flat(parts(block, lambda p: p.grad) | {"x": x.grad})}
        opt.step()
        out["losses"].append(loss.item())
    out["after"] = block(value(200, BATCH, TIME, FEATURES)).flatten().tolist()
    return out


expect = {
    "mixtral": trained(MixtralSparseMoeBlock(mixtral)),
    "deepseek": trained(DeepseekV3MoE(deepseek)),
    "balance": trained(MixtralSparseMoeBlock(mixtral), lambda block, x: BALANCE * balance(block, x)),
    "z": trained(MixtralSparseMoeBlock(mixtral), lambda block, x: Z * z(block, x)),
}
with open("expect.json", "w") as f:
    json.dump(expect, f, separators=(",", ":"))
    f.write("\n")
