"""Pictures with torchvision, tables with pandas, and steps with sentence-transformers, the peers of the command beside it: for each number
of seconds that it reads, it works for about that long and prints a line of JSON. With "make" it makes the files of a work instead.
"""
import json
import math
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS, PICTURES, ROWS, PAIRS, TOKENS = 2, 250, 615_000, 64, 64


def make_pictures(folder, kind):
    """Pictures of about 500 x 375 pixels with the spectrum of photos, whose amplitudes fall with the frequency."""
    import numpy as np
    from PIL import Image
    r = np.random.default_rng(1)
    for i in range(PICTURES):
        h, w = 375 + int(r.integers(-20, 20)), 500 + int(r.integers(-20, 20))
        f = np.hypot(np.fft.fftfreq(h)[:, None], np.fft.rfftfreq(w)[None]) + 1 / w
        planes = [np.fft.irfft2(np.fft.rfft2(r.standard_normal((h, w))) / f**1.2, (h, w)) for _ in range(3)]
        light = planes[0] / planes[0].std()
        pixels = np.stack([127 + 45 * light + 12 * p / p.std() for p in planes], 2) + r.standard_normal((h, w, 1)) * 2
        place = os.path.join(folder, kind, str(i % 10))
        os.makedirs(place, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(os.path.join(place, f"{i}.{kind}"), quality=90)


def make_table(folder):
    import numpy as np
    import pandas
    r = np.random.default_rng(1)
    table = pandas.DataFrame({chr(ord("a") + i): r.standard_normal(ROWS).round(17 if i % 2 == 0 else 6) for i in range(13)})
    table["n"] = r.integers(0, 1000, ROWS)
    table.to_csv(os.path.join(folder, "table.csv"), index=False)


def make_embed(folder, work):
    """A model of MiniLM-L6's sizes, without dropout, and pairs of texts: with the lengths of premises and hypotheses in SNLI and MultiNLI, or
    as long as the model reads.

    Premises have 14.1 and 22.3 words in the mean, hypotheses 8.3 and 11.4 (Bowman et al. 2015, Williams et al. 2018), with a long tail.
    """
    import random
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoTokenizer, BertConfig, BertModel
    torch.manual_seed(1)
    tokens = os.path.join(HERE, "..", "..", "models", "bert", "testdata", "mean")
    with open(os.path.join(tokens, "tokenizer.json")) as f:
        words = [w for w in json.load(f)["model"]["vocab"] if w.isalpha()]
    place = os.path.join(folder, "base")
    BertModel(BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
                         hidden_dropout_prob=0, attention_probs_dropout_prob=0)).save_pretrained(place)
    AutoTokenizer.from_pretrained(tokens).save_pretrained(place)
    layers = [Transformer(place, max_seq_length=TOKENS), Pooling(384, "mean"), Normalize()]
    SentenceTransformer(modules=layers, device="cpu").save(os.path.join(folder, "embed"))
    r = random.Random(1)
    lengths = [lambda: round(r.lognormvariate(math.log(16), 0.5)), lambda: round(r.lognormvariate(math.log(9), 0.4))]
    if work == "embed64":
        lengths = [lambda: 2 * TOKENS] * 2
    with open(os.path.join(folder, work + ".json"), "w") as f:
        json.dump([[" ".join(r.choices(words, k=max(1, length()))) for _ in range(PAIRS)] for length in lengths], f)


def pictures(folder):
    import torch
    import torchvision
    from torchvision.transforms import v2
    steps = v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
                        v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    on_pillow = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor(),
                            v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    loaders = [torch.utils.data.DataLoader(torchvision.datasets.ImageFolder(folder, t), 32, shuffle=True, num_workers=WORKERS,
                                           persistent_workers=True) for t in (steps, on_pillow)]

    def epoch(loader):
        return sum(len(x) for x, _ in loader)

    def seconds(loader):
        epoch(loader)  # starts its workers
        start = time.perf_counter()
        epoch(loader)
        return time.perf_counter() - start

    best = min(loaders, key=seconds)  # crops of tensors, or of Pillow's pictures
    return lambda: epoch(best), "torchvision " + torchvision.__version__


def table(folder, dtype=None):
    import pandas
    return lambda: len(pandas.read_csv(os.path.join(folder, "table.csv"), dtype=dtype)) // ROWS, "pandas " + pandas.__version__


def embeddings(folder, work):
    import sentence_transformers
    from sentence_transformers.base.losses.merged_forward import column_merging_disabled
    import torch
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    torch.set_flush_denormal(True)
    m = sentence_transformers.SentenceTransformer(os.path.join(folder, "embed"), device="cpu")
    with open(os.path.join(folder, work + ".json")) as f:
        sides = [m.preprocess(texts) for texts in json.load(f)]
    assert all(work != "embed64" or s["input_ids"].shape == (PAIRS, TOKENS) for s in sides)
    loss, opt = MultipleNegativesRankingLoss(m), torch.optim.AdamW(m.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    m.train()

    def step():
        opt.zero_grad()
        loss([dict(s) for s in sides], None).backward()
        opt.step()
        return 1

    def apart():
        with column_merging_disabled():
            return step()

    def seconds(do):
        do()
        start = time.perf_counter()
        do()
        return time.perf_counter() - start

    best = min(step, apart, key=seconds)  # both columns at once, padded to the longest text of both, or each alone
    return best, f"sentence-transformers {sentence_transformers.__version__}, PyTorch {torch.__version__}"


def main():
    work, folder = sys.argv[1:3]
    if work == "make":
        for what in sys.argv[3:]:
            {"jpeg": lambda: make_pictures(folder, "jpeg"), "webp": lambda: make_pictures(folder, "webp"),
             "table": lambda: make_table(folder), "embed": lambda: make_embed(folder, what),
             "embed64": lambda: make_embed(folder, what)}[what]()
        return
    do, version = {"jpeg": lambda: pictures(os.path.join(folder, "jpeg")), "webp": lambda: pictures(os.path.join(folder, "webp")),
                   "table": lambda: table(folder), "table32": lambda: table(folder, "float32"), "embed": lambda: embeddings(folder, work),
                   "embed64": lambda: embeddings(folder, work)}[work]()
    for line in sys.stdin:
        done, start = 0, time.perf_counter()
        while done == 0 or time.perf_counter() - start < float(line):
            done += do()
        print(json.dumps({"per_s": done / (time.perf_counter() - start), "version": version}), flush=True)


if __name__ == "__main__":
    main()
