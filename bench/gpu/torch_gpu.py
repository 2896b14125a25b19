"""What the Go program beside it measures, in PyTorch: reads names of sections, prints their rows, then "end".

usage: python -c "$(cat torch_gpu.py)" cuda|cpu SECONDS FOLDER

A row is section, case, variant, unit, median, lowest and highest of five windows of SECONDS, or ten calls, each with a
synchronization at its end, behind one that does not count: like Ringo's. What fails costs its own row alone. cpu has small
sizes, to try the program. FOLDER may have weights and tokens from Ringo: the losses that follow from them are rows, too.
"""
import gc
import os
import sys
import time
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = sys.argv[1]
GPU = DEVICE == "cuda"
WINDOWS, WINDOW, FOLDER = 5, float(sys.argv[2]), sys.argv[3]
BURST = 500  # calls that the driver takes before the first of them is done
problems = []  # of the section


def sync():
    if GPU:
        torch.cuda.synchronize()


def row(section, case, variant, unit, work, call, host=False):
    """Measures call; host: what the host needs for it, not the device."""

    def once(n):
        start = time.perf_counter()
        for _ in range(n):
            call()
        sync()
        return (time.perf_counter() - start) / n

    def issued(n):
        seconds = 0
        for first in range(0, n, BURST):
            start = time.perf_counter()
            for _ in range(min(BURST, n - first)):
                call()
            seconds += time.perf_counter() - start
            sync()
        return seconds / n

    def measure(once):
        once(3)
        n = min(max(10 if GPU else 1, int(WINDOW / once(3))), 5000)
        once(n)
        rates = sorted(work / once(n) for _ in range(WINDOWS))
        print(section, case, variant, unit, *(f"{x:.5g}" for x in (rates[WINDOWS // 2], rates[0], rates[-1])), sep="\t")

    try:
        measure(issued if host else once)
    except Exception as e:  # what follows may work
        failed(e, f"{case}, {variant}: ")


def failed(e, what=""):
    traceback.print_exc()
    problems.append(what + f"{type(e).__name__}: {e}".splitlines()[0])


def size_name(n):
    for shift, unit in ((30, "GiB"), (20, "MiB")):
        if n >> shift:
            return f"{n / (1 << shift):.2f} {unit}"


def random(dtype, *dims):
    return torch.empty(dims, device=DEVICE).uniform_(-1, 1).to(dtype)


def uneven(*dims):
    """Random rows that differ in size."""
    return random(torch.bfloat16, *dims) * torch.empty((dims[0], 1), device=DEVICE).uniform_(0.25, 1).to(torch.bfloat16)


def copy():
    n = 1 << 30 if GPU else 1 << 20
    x = random(torch.float32, n)
    y = torch.empty_like(x)
    row("copy", size_name(4 * n), "eager", "GB/s", 8e-9 * n, lambda: y.copy_(x))


def host():
    x = random(torch.float32, 1024)
    row("host", "2x+1 of 1024 elements", "eager", "ops/s", 1, lambda: torch.add(1, x, alpha=2), host=True)


def gemm():
    shapes = [(n, n, n) for n in (1024, 2048, 4096, 8192)] + [(32768, 2304, 768), (32768, 768, 3072), (32768, 50304, 768)]
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        for m, n, k in shapes if GPU else [(64, 64, 64)]:
            x, w = random(dtype, m, k), random(dtype, n, k)
            for tf32 in (False, True) if GPU and name == "float32" else (False,):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                row("gemm", f"{name} {m}x{n}x{k}", "TF32" if tf32 else "eager", "TFLOP/s", 2e-12 * m * n * k, lambda: x @ w.t())
    torch.backends.cuda.matmul.allow_tf32 = False


def row_kernels(name, dtype, r, c, kernels):
    x, y, w, b = random(dtype, r, c), random(dtype, r, c), random(dtype, c), random(dtype, c)
    size = 1e-9 * x.numel() * x.element_size()
    for what, moved, call in (
        ("add", 3, lambda: x + y),
        ("gelu", 2, lambda: F.gelu(x, approximate="tanh")),
        ("softmax", 2, lambda: F.softmax(x, -1)),
        ("layernorm", 2, lambda: F.layer_norm(x, (c,), w, b)),
        ("rmsnorm", 2, lambda: F.rms_norm(x, (c,), w, 1e-5)),
    ):
        if what in kernels:
            row("rows", f"{name} {what} {r}x{c}", "eager", "GB/s", moved * size, call)


def norm_gradient(name, dtype, r, c):
    x, g, w, b = random(dtype, r, c), random(dtype, r, c), random(dtype, c), random(dtype, c)
    mean, rstd = torch.native_layer_norm(x, (c,), w, b, 1e-5)[1:]
    row(
        "rows",
        f"{name} layernorm gradient {r}x{c}",
        "eager",
        "GB/s",
        3e-9 * x.numel() * x.element_size(),
        lambda: torch.ops.aten.native_layer_norm_backward(g, x, (c,), mean, rstd, w, b, [True] * 3),
    )


def logits(r, c):
    x, y = random(torch.bfloat16, r, c).requires_grad_(), torch.randint(0, c, (r,), device=DEVICE)
    call = lambda: torch.autograd.grad(F.cross_entropy(x, y), x)
    row("rows", f"bfloat16 cross-entropy and gradient {r}x{c}", "eager", "GB/s", 4e-9 * x.numel(), call)


def rows():
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        row_kernels(name, dtype, *((16384, 4096) if GPU else (64, 64)), ("add", "gelu", "softmax", "layernorm"))
        row_kernels(name, dtype, *((32768, 768) if GPU else (32, 48)), ("layernorm", "rmsnorm"))
        norm_gradient(name, dtype, *((32768, 768) if GPU else (100, 48)))
    logits(*((32768, 50304) if GPU else (16, 200)))
    n = 11264 if GPU else 64
    p = nn.Parameter(random(torch.float32, n, n))
    opt = torch.optim.AdamW([p], lr=1e-4, weight_decay=0.1, fused=True)

    def step():
        opt.zero_grad(set_to_none=True)
        p.sum().backward()
        opt.step()

    row("rows", f"float32 sum, gradient and AdamW of {n}x{n}", "eager", "GB/s", 36e-9 * n * n, step)


def attention():
    for b, t, heads, hd in ((32, 1024, 12, 64), (4, 4096, 16, 128)) if GPU else ((1, 32, 2, 64), (1, 32, 2, 128)):
        qkv = random(torch.bfloat16, b, t, 3, heads, hd)
        q, k, v = (qkv[:, :, i].transpose(1, 2).detach().requires_grad_() for i in range(3))
        gout = random(torch.bfloat16, b, t, heads, hd).transpose(1, 2)
        name, work = f"{b}x{t}, {heads} heads of {hd}", 2e-12 * b * heads * hd * t * t

        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        def inference():
            with torch.no_grad():
                forward()

        def training():
            return torch.autograd.grad(forward(), (q, k, v), gout)

        for variant, kernel in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)) if GPU else (("eager", SDPBackend.MATH),):
            with sdpa_kernel(kernel):
                row("attention", name + ", forward", variant, "TFLOP/s", work, inference)
                row("attention", name + ", and backward", variant, "TFLOP/s", 3.5 * work, training)


def grouped():
    groups, unit = 8, 512 if GPU else 1
    rows, sizes = groups * groups * unit, [(2 * i + 1) * unit for i in range(groups)]
    ends = torch.tensor(sizes, device=DEVICE).cumsum(0).to(torch.int32)
    for i, o in ((768, 3072), (3072, 768)) if GPU else ((16, 64), (64, 16)):
        x, w = (random(torch.bfloat16, *dims).requires_grad_() for dims in ((rows, i), (groups, o, i)))
        gout = random(torch.bfloat16, rows, o)

        def products():
            return torch._grouped_mm(x, w.transpose(1, 2), offs=ends)

        def loop():
            return torch.cat([y @ v.t() for y, v in zip(x.split(sizes), w)])

        for variant, forward in (("_grouped_mm", products), ("loop", loop)):
            if variant == "_grouped_mm" and not hasattr(torch, variant):
                continue

            def inference():
                with torch.no_grad():
                    forward()

            name, work = f"{rows} rows, {i} to {o}", 2e-12 * rows * i * o
            row("grouped", name + ", forward", variant, "TFLOP/s", work, inference)
            row("grouped", name + ", and backward", variant, "TFLOP/s", 3 * work, lambda: torch.autograd.grad(forward(), (x, w), gout))


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def rounded(x, dtype, per_row):
    """Codes of x, with a scale or one for each row, and the inverse scales: torchao's dynamic scaling."""
    most = torch.finfo(dtype).max
    amax = x.abs().amax(1, keepdim=True) if per_row else x.abs().amax()
    scale = most / amax.float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-most, most).to(dtype), scale.reciprocal()


def product8(a, b, fast):
    """a times the transpose of b, both rounded."""
    (x, sx), (w, sw) = a, b
    return torch._scaled_mm(x, w.t(), scale_a=sx, scale_b=sw.t(), out_dtype=torch.bfloat16, use_fast_accum=fast)


class Linear8(torch.autograd.Function):
    """torchao's Float8Linear: fast accumulation in the forward pass only."""

    @staticmethod
    def forward(ctx, x, w, per_row):
        ctx.save_for_backward(x, w)
        ctx.per_row = per_row
        return product8(rounded(x, E4M3, per_row), rounded(w, E4M3, per_row), True)

    @staticmethod
    def backward(ctx, g):
        (x, w), per_row = ctx.saved_tensors, ctx.per_row
        dx = product8(rounded(g, E5M2, per_row), rounded(w.t().contiguous(), E4M3, per_row), False)
        if per_row:
            return dx, g.t() @ x, None
        return dx, product8(rounded(g.t().contiguous(), E5M2, False), rounded(x.t().contiguous(), E4M3, False), False), None


def float8():
    for name, per_row in (("per tensor", False), ("per row", True)):
        for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (32768, 768, 3072)) if GPU else ((32, 64, 48),):
            x, w = (rounded(uneven(rows, k), E4M3, per_row) for rows in (m, n))
            row("float8", f"{m}x{n}x{k} {name}", "_scaled_mm", "TFLOP/s", 2e-12 * m * n * k, lambda: product8(x, w, True))
        m, n, k = (8192, 4096, 4096) if GPU else (32, 48, 64)
        x, w = (uneven(rows, k).requires_grad_() for rows in (m, n))
        g = uneven(m, n)
        for variant in ("compiled", "eager") if GPU else ("eager",):
            forward = (lambda x, w: Linear8.apply(x, w, per_row)) if variant == "eager" else torch.compile(lambda x, w: Linear8.apply(x, w, per_row))
            case = f"Linear of {m} rows, {k} to {n} {name}, and backward"
            row("float8", case, variant, "TFLOP/s", 6e-12 * m * n * k, lambda: torch.autograd.grad(forward(x, w), (x, w), g))


def conv():
    """TF32, which Ringo does not use, is a variant of its own. cuDNN chooses algorithms by time."""
    convolution(torch.float32, *((128, 32, 64, 14) if GPU else (2, 3, 5, 6)))
    convolution(torch.bfloat16, *((128, 64, 128, 32) if GPU else (2, 4, 6, 6)))


def convolution(dtype, n, i, o, size):
    x, w, b, g = (random(dtype, *dims) for dims in ((n, i, size, size), (o, i, 3, 3), (o,), (n, o, size, size)))

    def gradient(*which):
        return lambda: torch.ops.aten.convolution_backward(g, x, w, [o], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [*which, False])

    for tf32 in (False, True) if GPU and dtype == torch.float32 else (False,):
        torch.backends.cudnn.allow_tf32 = tf32
        for what, call in (
            ("forward", lambda: F.conv2d(x, w, b, padding=1)),
            ("gradient of x", gradient(True, False)),
            ("gradient of w", gradient(False, True)),
        ):
            case = f"{str(dtype)[6:]}, {n} pictures of {size}x{size}, {i} to {o} channels, {what}"
            row("conv", case, "TF32" if tf32 else "eager", "TFLOP/s", 18e-12 * g.numel() * i, call)
    torch.backends.cudnn.allow_tf32 = False


def cnn():
    batch, first, second, wide = (128, 32, 64, 128) if GPU else (2, 2, 3, 8)
    net = nn.Sequential(
        *(nn.Conv2d(1, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(second * 49, wide), nn.ReLU(), nn.Linear(wide, 10)),
    )
    steps("cnn", net, random(torch.float32, batch, 1, 28, 28), 0.01)


def mlp():
    for batch in (64, 256):
        net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        steps("mlp", net, random(torch.float32, batch, 784), 0.1)


def steps(section, net, x, lr):
    """Training steps of a network with ten outputs, and those of a CUDA graph."""
    net.to(DEVICE)
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, fused=True)
    y = torch.randint(0, 10, (len(x),), device=DEVICE)

    def work():
        F.cross_entropy(net(x), y).backward()
        opt.step()

    def step():
        opt.zero_grad(set_to_none=True)
        work()

    row(section, f"batch {len(x)}", "eager", "steps/s", 1, step)
    if GPU:
        row(section, f"batch {len(x)}, captured", "CUDA graph", "steps/s", 1, captured(work, opt))


def captured(work, opt):
    """Replays work after zero_grad, which the first call records: without gradients before, the first writes of gradients overwrite."""
    graph = None

    def replay():
        nonlocal graph
        if graph is None:
            graph = record(work, opt)
        graph.replay()

    return replay


def record(work, opt):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            opt.zero_grad(set_to_none=True)
            work()
    torch.cuda.current_stream().wait_stream(side)
    opt.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, ids, labels):
        x = self.tok(ids) + self.pos.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class Training:
    """A language model with what a step needs. half: products in bfloat16."""

    def __init__(self, vocabulary, length, width, layers, heads, batch, compiled=False, half=True):
        self.half = half
        self.net = GPT(vocabulary, length, width, layers, heads).to(DEVICE)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-5 if half else 3e-4, weight_decay=0.1, fused=True, capturable=GPU)
        self.ids, self.labels = (torch.randint(0, vocabulary, (batch, length), device=DEVICE) for _ in range(2))
        self.loss = torch.compile(self.net) if compiled else self.net
        self.case = f"{layers} layers of {width}, batch {batch}, length {length}"

    def work(self):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.half, cache_enabled=False):
            value = self.loss(self.ids, self.labels)
        value.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        return value

    def step(self):
        self.opt.zero_grad(set_to_none=True)
        return self.work()

    def load(self, path):
        """Takes weights and tokens of Ringo, in the order of its model."""
        flat, at = torch.from_file(path + ".weights", size=os.path.getsize(path + ".weights") // 4), 0

        def take(*parts):
            nonlocal at
            for p in parts:
                p.detach().copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()

        net = self.net
        take(net.tok.weight, net.pos.weight)
        for b in net.blocks:
            take(b.norm1.weight, b.norm1.bias)
            for w, bias in zip(b.qkv.weight.chunk(3), b.qkv.bias.chunk(3)):
                take(w, bias)
            for layer in (b.out, b.norm2, b.up, b.down):
                take(layer.weight, layer.bias)
        take(net.norm.weight, net.norm.bias)
        if at != flat.numel():
            raise ValueError(f"{path}.weights has {flat.numel()} numbers, the model {at}")
        tokens = torch.from_file(path + ".tokens", size=2 * self.ids.numel(), dtype=torch.int64).view(2, *self.ids.shape)
        self.ids, self.labels = tokens.to(DEVICE)


def losses(section, sizes):
    """Prints the first and the last loss of some steps from Ringo's weights: a few small ones in bfloat16, whose losses are soon chaotic
    otherwise, and more in float32 with a quarter of the batch."""
    for half, dtype, steps in ((False, "float32", 20), (True, "bfloat16", 5)):
        path = os.path.join(FOLDER, f"{section}.{dtype}")
        if not FOLDER or not os.path.exists(path + ".tokens"):
            continue
        training = Training(*sizes[:5], sizes[5] if half else max(sizes[5] // 4, 2), half=half)
        training.load(path)
        case = training.case if half else training.case + ", float32"
        found = [training.step().item() for _ in range(steps + 1)]
        for what, x in (("first loss", found[0]), (f"loss after {steps} steps", found[steps])):
            print(section, f"{case}, {what}", "eager", "loss", *([f"{x:.6g}"] * 3), sep="\t")


def gpt():
    sizes = (512, 128, 256, 4, 4, 16) if GPU else (64, 16, 32, 2, 2, 2)
    losses("gpt", sizes)
    training = Training(*sizes)
    row("gpt", training.case, "eager", "tokens/s", sizes[1] * sizes[5], training.step)
    if GPU:
        row("gpt", training.case + ", captured", "CUDA graph", "tokens/s", sizes[1] * sizes[5], captured(training.work, training.opt))


GPT2 = (50304, 1024, 768, 12, 12, 32) if GPU else (64, 16, 32, 2, 2, 2)


def gpt2():
    losses("gpt2", GPT2)
    for variant in ("compiled", "eager") if GPU else ("eager",):
        training = Training(*GPT2, compiled=variant == "compiled")
        row("gpt2", training.case, variant, "tokens/s", GPT2[1] * GPT2[5], training.step)


def compile():
    """Fills PyTorch's caches on the disk with what gpt2 compiles."""
    if GPU:
        Training(*GPT2, compiled=True).step()
        sync()


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    sections = {f.__name__: f for f in (copy, host, gemm, rows, attention, grouped, float8, conv, cnn, mlp, gpt, gpt2, compile)}
    about = f"PyTorch {torch.__version__}"
    torch.set_num_threads(1)  # of the host, like Ringo
    if GPU:
        about += f", CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}"
    print(about)
    for line in sys.stdin:
        problems.clear()
        try:
            sections[line.strip()]()
        except Exception as e:  # the next section may work
            failed(e)
        gc.collect()
        if GPU:
            torch.cuda.empty_cache()
        print("end", "; ".join(problems))


main()
