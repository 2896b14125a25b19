"""Makes the folders in this one, and expect.json: what sentence-transformers computes for them.

Run in this folder:  python write.py

with torch 2.15.0, transformers 5.23.0 and sentence-transformers 6.2.0. The folders are as it saves them; that of old has files in the form
of older versions.
"""
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel, BertTokenizer

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

STEPS = 20
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a of is what color sky blue grass green sun yellow snow white ##s ##ish , ? .".split()
TEXTS = ["What color is the sky?", "Blue.", "the grass", "The suns of yellowish snow, white, a blue sky is green grass, what is the color?", "",
         "Ünknown sky!"]
PAIRS = [("what color is the sky", "the sky is blue"), ("color of grass?", "green"), ("what is yellow", "the sun, the yellow sun of the sky"),
         ("snow", "white is the color of snow. the grass is green"), ("sun", "yellow")]


def tokenizer(folder):
    os.makedirs(folder)
    with open(folder + "/vocab.txt", "w") as f:
        f.write("\n".join(WORDS) + "\n")
    BertTokenizer(folder + "/vocab.txt").save_pretrained(folder)
    os.remove(folder + "/vocab.txt")


def made(name, mode, normalize, **config):
    shutil.rmtree(name, ignore_errors=True)
    tokenizer(name)
    torch.manual_seed(5)
    m = BertModel(BertConfig(vocab_size=len(WORDS), hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
                             max_position_embeddings=20, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **config))
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    m.save_pretrained(name)
    word = Transformer(name, max_seq_length=16)
    modules = [word, Pooling(12, pooling_mode=mode)] + ([Normalize()] if normalize else [])
    st = SentenceTransformer(modules=modules, device="cpu")
    shutil.rmtree(name)
    st.save(name, create_model_card=False)
    return SentenceTransformer(name, device="cpu").double()


def old(folder, source):
    """Writes the files in the form of older versions: as sentence-transformers/all-MiniLM-L6-v2 has them, with the names of a BERT for
    other tasks, in bfloat16, without pooler."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    tensors = {"bert." + k: v.to(torch.bfloat16) for k, v in load_file(source + "/model.safetensors").items() if "pooler" not in k}
    tensors["bert.embeddings.position_ids"] = torch.arange(20).reshape(1, 20)
    tensors["cls.predictions.bias"] = torch.zeros(len(WORDS))
    save_file(tensors, folder + "/model.safetensors", metadata={"format": "pt"})
    def write(name, value):
        with open(folder + "/" + name, "w") as f:
            json.dump(value, f, indent=2)
    write("modules.json", [dict(idx=i, name=str(i), path=p, type="sentence_transformers.models." + t)
                           for i, (p, t) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])])
    write("1_Pooling/config.json", dict(word_embedding_dimension=12, pooling_mode_cls_token=False, pooling_mode_mean_tokens=True,
                                        pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False))
    write("sentence_bert_config.json", dict(max_seq_length=16, do_lower_case=False))
    shutil.rmtree(folder + "/2_Normalize", ignore_errors=True)
    with open(folder + "/tokenizer_config.json") as f:
        settings = json.load(f)
    settings["model_max_length"] = 1000000000000000019884624838656
    write("tokenizer_config.json", settings)
    os.remove(folder + "/config_sentence_transformers.json")


def vectors(m):
    return m.encode(TEXTS, convert_to_tensor=True, batch_size=len(TEXTS)).flatten().tolist()


def trained(m):
    """Features, vectors, losses of STEPS steps of AdamW, and the vectors after them."""
    features = m[0](m.tokenize(TEXTS[:4]))
    mask = features["attention_mask"].unsqueeze(-1)
    before = vectors(m)
    loss = MultipleNegativesRankingLoss(m)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    m.train()
    for step in range(STEPS):
        pairs = PAIRS[step % 3:]
        sides = [m.tokenize([p[i] for p in pairs]) for i in (0, 1)]
        x = loss(sides, None)
        opt.zero_grad()
        x.backward()
        opt.step()
        losses.append(x.item())
    m.eval()
    return {"features": (features["token_embeddings"] * mask).flatten().tolist(), "before": before, "losses": losses, "after": vectors(m)}


expect = {"texts": TEXTS, "pairs": PAIRS}
for name, mode, normalize in [("mean", "mean", True), ("cls", "cls", False)]:
    expect[name] = trained(made(name, mode, normalize))
old("old", "mean")
expect["old"] = {"before": vectors(SentenceTransformer("old", device="cpu").double())}
with open("expect.json", "w") as f:
    json.dump(expect, f)
