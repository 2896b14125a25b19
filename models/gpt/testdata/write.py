"""Makes the folders in this one, and expect.json: what transformers computes for them.

Run in this folder:  python write.py

with torch 2.15.0 and transformers 5.23.0. Folders are as save_pretrained writes them, but for "old".
"""
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Phi3Config,
                          Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

# Angles, norms and softmax are computed in float32 by transformers, whatever the model's type: here in float64.
torch.float = torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

VOCAB, POSITIONS, BATCH, TIME, STEPS = 13, 12, 3, 9, 20

gpt2 = GPT2Config(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=12, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                  bos_token_id=0, eos_token_id=0)
small = dict(vocab_size=VOCAB, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=POSITIONS, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0)
llama = LlamaConfig(**small)
scaled = LlamaConfig(**{**small, "num_hidden_layers": 1, "head_dim": 6}, tie_word_embeddings=True, rope_parameters=dict(
    rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8))
tiny = dict(vocab_size=VOCAB, hidden_size=8, intermediate_size=10, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=0, pad_token_id=None)
gemma = dict(vocab_size=VOCAB, hidden_size=4, intermediate_size=10, num_attention_heads=2, num_key_value_heads=1, head_dim=4,
             max_position_embeddings=POSITIONS, query_pre_attn_scalar=2, sliding_window=3, bos_token_id=0, eos_token_id=0,
             pad_token_id=None)

experts = dict(num_local_experts=4, num_experts_per_tok=2, experts_implementation="eager")  # others have no float64


def ids(step):
    """Tokens, the same as the Go test's ids()."""
    n = BATCH * TIME
    return torch.tensor([((i * i + 7 * step + 3 * i) // 2) % VOCAB for i in range(n)]).reshape(BATCH, TIME)


def made(kind, config):
    torch.manual_seed(5)
    m = kind(config).double()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return m


def balance(m, out):
    """The balance loss of a model with one layer of experts: that of transformers is not divided by the number of a token's experts."""
    c = m.config
    return c.router_aux_loss_coef * out.aux_loss / c.num_experts_per_tok if getattr(c, "output_router_logits", False) else 0


def trained(m):
    """Logits, losses of STEPS steps of AdamW, and the logits after them."""
    m.train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.01)
    before = m(ids(0)).logits.detach().flatten().tolist()
    losses = []
    for step in range(STEPS):
        x = ids(step)
        out = m(x[:, :-1])
        logits = out.logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), x[:, 1:].reshape(-1))
        opt.zero_grad()
        (loss + balance(m, out)).backward()
        opt.step()
        losses.append(loss.item())
    return {"before": before, "losses": losses, "after": m(ids(0)).logits.detach().flatten().tolist()}


def old(folder, source):
    """Writes GPT-2 as OpenAI's files have it: without prefix, with masks, and a short config."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tensors = {k.removeprefix("transformer."): v.to(torch.bfloat16).contiguous()
               for k, v in load_file(source + "/model.safetensors").items()}
    for i in range(2):
        tensors[f"h.{i}.attn.bias"] = torch.tril(torch.ones(POSITIONS, POSITIONS, dtype=torch.bfloat16)).reshape(1, 1, POSITIONS, POSITIONS)
    save_file(tensors, folder + "/model.safetensors", metadata={"format": "pt"})
    with open(folder + "/config.json", "w") as f:
        json.dump(dict(model_type="gpt2", activation_function="gelu_new", n_ctx=POSITIONS, n_embd=12, n_head=3, n_layer=2,
                       n_positions=POSITIONS, vocab_size=VOCAB, layer_norm_epsilon=1e-5), f, indent=2)


expect = {}
for name, kind, config in [
        ("gpt2", GPT2LMHeadModel, gpt2), ("llama", LlamaForCausalLM, llama), ("scaled", LlamaForCausalLM, scaled),
        ("mistral", MistralForCausalLM, MistralConfig(**tiny, head_dim=4, sliding_window=POSITIONS)),
        ("qwen2", Qwen2ForCausalLM, Qwen2Config(**tiny, tie_word_embeddings=True)),
        ("qwen3", Qwen3ForCausalLM, Qwen3Config(**tiny, head_dim=4)),
        ("phi3", Phi3ForCausalLM, Phi3Config(**tiny)),
        ("window", MistralForCausalLM, MistralConfig(**tiny, head_dim=2, sliding_window=3)),
        ("late", Qwen2ForCausalLM, Qwen2Config(**{**tiny, "num_hidden_layers": 2}, use_sliding_window=True, sliding_window=4,
                                               max_window_layers=1)),
        ("mixtral", MixtralForCausalLM, MixtralConfig(**{**tiny, "intermediate_size": 6}, **experts, head_dim=4, sliding_window=4,
                                                      output_router_logits=True, router_aux_loss_coef=0.2)),
        ("qwen3_moe", Qwen3MoeForCausalLM, Qwen3MoeConfig(**tiny, **experts, head_dim=4, moe_intermediate_size=6, norm_topk_prob=True)),
        ("unnormalized", Qwen3MoeForCausalLM, Qwen3MoeConfig(**tiny, **experts, head_dim=2, moe_intermediate_size=6)),
        ("smollm3", SmolLM3ForCausalLM, SmolLM3Config(**{**tiny, "num_hidden_layers": 2}, head_dim=4, no_rope_layer_interval=2)),
        ("gemma2", Gemma2ForCausalLM, Gemma2Config(**gemma, num_hidden_layers=2, attn_logit_softcapping=0.5, final_logit_softcapping=2.0)),
        ("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(**gemma, num_hidden_layers=3, sliding_window_pattern=2, rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=500.0, factor=2.0),
            sliding_attention=dict(rope_type="default", rope_theta=20.0))))]:
    m = made(kind, config)
    shutil.rmtree(name, ignore_errors=True)
    m.save_pretrained(name)
    expect[name] = trained(m)
    if config.model_type not in ("gpt2", "llama"):
        del expect[name]["after"]  # the losses say as much
old("old", "gpt2")
with open("expect.json", "w") as f:
    json.dump(expect, f)
