"""Checks the attention kernels against a float64 reference, then times them. Peer: PyTorch's SDPA (flash and cuDNN).

usage: attention.py KERNELS_FOLDER [--times] [--device cuda|cpu]

KERNELS_FOLDER is crates/tensor/src/kernels. ONLY=TEXT runs the cases with TEXT in their names. Exits with 1 if a case fails.
--times checks nothing and prints the published times as one JSON line: microseconds of one layer, forward and backward. On a CPU the
kernels are compiled for an H200 but not run, and PyTorch's attention is timed with small sizes: it tests this script. Needs torch."""
import concurrent.futures, ctypes, functools, glob, json, math, os, statistics, subprocess, sys, tempfile, time, traceback

import torch

FOLDER = sys.argv[1]
DEVICE = "cpu" if "--device" in sys.argv and sys.argv[sys.argv.index("--device") + 1] == "cpu" else "cuda"
START = time.time()


class View(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("batch", ctypes.c_int64), ("time", ctypes.c_int), ("head", ctypes.c_int)]


def view(x):  # x is [B, T, H, D]; only the last stride must be 1
    assert x.stride(3) == 1
    return View(x.data_ptr(), x.stride(0), x.stride(1), x.stride(2))


# ---------------------------------------------------------------- compile and launch
@functools.cache
def find_nvrtc():
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    for root in (packages + "/nvidia", packages + "/torch/lib", "/usr/local/cuda/lib64", "/usr/local/cuda/targets"):
        names += sorted(p for p in glob.glob(root + "/**/libnvrtc.so*", recursive=True) if "alt" not in p)
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


def compile_text(text, options, arch):
    lib = find_nvrtc()
    options = ["--gpu-architecture=" + arch, "-default-device", "--std=c++17", *options]
    if lib is None:
        with tempfile.TemporaryDirectory() as d:
            open(d + "/a.cu", "w").write(text)
            subprocess.run(["nvcc", "-cubin", "-arch=" + arch, "-std=c++17", *options[3:], "-o", d + "/a.cubin", d + "/a.cu"], check=True)
            return open(d + "/a.cubin", "rb").read()
    program = ctypes.c_void_p()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"attention.cu", 0, None, None) == 0
    raw = [o.encode() for o in options]
    result = lib.nvrtcCompileProgram(program, len(raw), (ctypes.c_char_p * len(raw))(*raw))
    n = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(n))
    log = ctypes.create_string_buffer(n.value)
    lib.nvrtcGetProgramLog(program, log)
    if result:
        raise RuntimeError(log.value.decode()[:3000])
    lib.nvrtcGetCUBINSize(program, ctypes.byref(n))
    image = ctypes.create_string_buffer(n.value)
    lib.nvrtcGetCUBIN(program, image)
    return image.raw


class Module:
    def __init__(self, image):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.handle, self.functions = ctypes.c_void_p(), {}
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(self.handle), image))

    def check(self, code):
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"driver error {code}: {text.value}")

    def launch(self, name, grid, block, shared, args):
        if name not in self.functions:
            f = ctypes.c_void_p()
            self.check(self.cuda.cuModuleGetFunction(ctypes.byref(f), self.handle, name.encode()))
            self.check(self.cuda.cuFuncSetAttribute(f, 8, shared))
            self.functions[name] = [f, shared]
        f = self.functions[name]
        if f[1] < shared:
            self.check(self.cuda.cuFuncSetAttribute(f[0], 8, shared))
            f[1] = shared
        pointers = (ctypes.c_void_p * len(args))(*[ctypes.addressof(a) for a in args])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.cuda.cuLaunchKernel(f[0], grid, 1, 1, block, 1, 1, shared, stream, pointers, None))


# ---------------------------------------------------------------- launch parameters, as the engine chooses them
ROWS = {"": {64: 128, 32: 64}, "_m2n4": {64: 128}, "_m2n8": {64: 128}, "_m1n8": {64: 64}, "_m1n4": {64: 64}}


def pointer(x):
    return ctypes.c_void_p(0 if x is None else x.data_ptr())


def ceil(a, b):
    return (a + b - 1) // b


def forward(m, q, k, v, o, lse, lengths, mask, causal, scale, variant=""):
    b, tq, h, d = q.shape
    tk = k.shape[1]
    args = [view(q), view(k), view(v), view(o), pointer(lse), pointer(lengths), pointer(mask)]
    args += [ctypes.c_int(x) for x in (b, h, tq, tk, int(causal))] + [ctypes.c_float(scale)]
    if q.dtype == torch.float32:
        pitch = ceil(d, 16) * 16 + 4
        m.launch("attention_forward_f32", b * h * ceil(tq, 32), 128, 4 * (64 * pitch + 32 * 17), args + [ctypes.c_int(d)])
    else:
        rows = ROWS[variant][d]
        m.launch(f"attention_forward_bf16_d{d}{variant}", b * h * ceil(tq, rows), 128, (rows + 256) * d * 2, args)


def backward_q(m, q, k, v, o, grad, dq, lse, delta, lengths, mask, causal, scale, variant=""):
    b, tq, h, d = q.shape
    tk = k.shape[1]
    args = [view(q), view(k), view(v), view(o), view(grad), view(dq), pointer(lse), pointer(delta), pointer(lengths), pointer(mask)]
    args += [ctypes.c_int(x) for x in (b, h, tq, tk, int(causal))] + [ctypes.c_float(scale)]
    if q.dtype == torch.float32:
        pitch = ceil(d, 16) * 16 + 4
        m.launch("attention_backward_q_f32", b * h * ceil(tq, 32), 128, 4 * (96 * pitch + 32 * 17), args + [ctypes.c_int(d)])
    else:
        rows = ROWS[variant][d]
        m.launch(f"attention_backward_q_bf16_d{d}{variant}", b * h * ceil(tq, rows), 128, (2 * rows + 256) * d * 2, args)


def backward_kv(m, q, k, v, grad, dk, dv, lse, delta, lengths, mask, causal, scale, variant=""):
    b, tq, h, d = q.shape
    tk = k.shape[1]
    args = [view(q), view(k), view(v), view(grad), view(dk), view(dv), pointer(lse), pointer(delta), pointer(lengths), pointer(mask)]
    args += [ctypes.c_int(x) for x in (b, h, tq, tk, int(causal))] + [ctypes.c_float(scale)]
    if q.dtype == torch.float32:
        pitch = ceil(d, 16) * 16 + 4
        m.launch("attention_backward_kv_f32", b * h * ceil(tk, 32), 128, 4 * (96 * pitch + 64 * 17), args + [ctypes.c_int(d)])
    else:
        rows = ROWS[variant][d]
        m.launch(f"attention_backward_kv_bf16_d{d}{variant}", b * h * ceil(tk, rows), 128, (2 * rows + 256) * d * 2 + 1024, args)


# ---------------------------------------------------------------- float64 reference
def reference(q, k, v, grad, lengths, mask, causal, scale):
    q, k, v, g = (x.double().transpose(1, 2) for x in (q, k, v, grad))
    b, h, tq, d = q.shape
    tk = k.shape[2]
    seen = torch.ones(b, 1, tq, tk, dtype=torch.bool, device=q.device)
    keys, rows = torch.arange(tk, device=q.device), torch.arange(tq, device=q.device)
    if causal:
        seen &= keys[None, :] <= rows[:, None] + (tk - tq)
    if lengths is not None:
        seen &= (keys[None, :] < lengths[:, None])[:, None, None, :]
    if mask is not None:
        seen &= (mask != 0)[:, None, None, :]
    s = (q @ k.transpose(2, 3) * scale).masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(s, -1)
    none = lse == -math.inf
    p = torch.where(none[..., None], 0.0, torch.exp(s - torch.where(none, 0.0, lse)[..., None]))
    o = p @ v
    ds = p * (g @ v.transpose(2, 3) - (g * o).sum(-1, keepdim=True))
    lse = torch.where(none, math.inf, lse)  # the kernel marks rows without keys by +inf
    return [o.transpose(1, 2), lse, (scale * (ds @ k)).transpose(1, 2), (scale * (ds.transpose(2, 3) @ q)).transpose(1, 2),
            (p.transpose(2, 3) @ g).transpose(1, 2)]


def make(layout, b, tq, tk, h, d, dtype, generator):
    def rand(*shape):
        return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)

    def nan(*shape):
        return torch.full(shape, math.nan, dtype=dtype, device=DEVICE)

    if layout == "packed":
        assert tq == tk
        x, dx = rand(b, tq, 3, h, d), nan(b, tq, 3, h, d)
        ins, outs = [x[:, :, i] for i in range(3)], [dx[:, :, i] for i in range(3)]
    elif layout == "interleaved":
        assert tq == tk
        x, dx = rand(b, tq, h, 3, d), nan(b, tq, h, 3, d)
        ins, outs = [x[:, :, :, i] for i in range(3)], [dx[:, :, :, i] for i in range(3)]
    else:  # separate, with 3 more time steps after each row of the batch, which must stay unchanged
        ins = [rand(b, t + 3, h, d)[:, :t] for t in (tq, tk, tk)]
        outs = [nan(b, t + 3, h, d)[:, :t] for t in (tq, tk, tk)]
    grad, o = rand(b, tq, h, d), nan(b, tq, h, d)
    if layout == "separate":
        o = nan(b, tq + 3, h, d)[:, :tq]
    return ins, outs, grad, o


def behind(x):  # the time steps after a "separate" output
    b, t, h, d = x.shape
    return torch.as_strided(x, (b, 3, h, d), x.stride(), x.storage_offset() + t * x.stride(1))


def errors(got, want):
    got = got.double()
    empty = want == math.inf
    if not torch.equal(got == math.inf, empty):
        return math.inf, math.inf
    d, want = torch.where(empty, 0.0, got - want), torch.where(empty, 0.0, want)
    if not torch.isfinite(d).all():
        return math.inf, math.inf
    top, rms = want.abs().max().item(), want.pow(2).mean().sqrt().item()
    return d.abs().max().item() / max(top, 1e-3), d.pow(2).mean().sqrt().item() / max(rms, 1e-3)


failures, lines = [], []


def run_case(m, name, b, h, tq, tk=None, d=64, causal=True, layout="separate", dtype=torch.bfloat16, lengths=None,
             mask=None, growing=False, variants=("", "", "")):
    if os.environ.get("ONLY", "") not in name:
        return
    try:
        tk = tk or tq
        generator = torch.Generator().manual_seed(hash((b, h, tq, tk, d)) % 1000)
        (q, k, v), outs, grad, o = make(layout, b, tq, tk, h, d, dtype, generator)
        if growing:  # scores rise along the keys, so that the running maximum changes often
            k.mul_(torch.linspace(0.1, 8, tk, device=DEVICE).to(dtype)[None, :, None, None])
        lengths = None if lengths is None else torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
        if mask == "holes":
            mask = (torch.rand(b, tk, generator=generator) < 0.6).int().to(DEVICE)
        elif mask == "none in batch 0":
            mask = (torch.rand(b, tk, generator=generator) < 0.6).int().to(DEVICE)
            mask[0] = 0
        elif mask == "late":  # early queries see nothing when causal
            mask = torch.ones(b, tk, dtype=torch.int32, device=DEVICE)
            mask[:, : tk // 2] = 0
        scale = 1 / math.sqrt(d)
        lse = torch.full((b, h, tq), math.nan, device=DEVICE)
        delta = torch.full((b, h, tq), math.nan, device=DEVICE)

        def once():
            for x in (o, lse, delta, *outs):
                x.fill_(math.nan)
            forward(m, q, k, v, o, lse, lengths, mask, causal, scale, variants[0])
            backward_q(m, q, k, v, o, grad, outs[0], lse, delta, lengths, mask, causal, scale, variants[1])
            backward_kv(m, q, k, v, grad, outs[1], outs[2], lse, delta, lengths, mask, causal, scale, variants[2])
            torch.cuda.synchronize()
            return [x.clone() for x in (o, lse, *outs)]

        first, second = once(), once()
        want = reference(q, k, v, grad, lengths, mask, causal, scale)
        limit = (2.5e-2, 8e-3) if dtype == torch.bfloat16 else (3e-5, 5e-6)
        text, good = [], True
        for what, x, y, w in zip(("o", "lse", "dq", "dk", "dv"), first, second, want):
            worst, rms = errors(x, w)
            top, mean = (1e-4, 1e-4) if what == "lse" else limit
            ok = worst < top and rms < mean and torch.equal(x, y)
            good &= ok
            text.append(f"{what} {worst:.0e}/{rms:.0e}" + ("" if torch.equal(x, y) else " NOT BIT-EQUAL") + ("" if ok else " <<<"))
        if layout == "separate":
            for x in (o, *outs):
                if not torch.isnan(behind(x)).all():
                    good = False
                    text.append("WROTE PAST THE END <<<")
        print(("ok   " if good else "FAIL ") + f"{name:44s}" + "  ".join(text), flush=True)
        if not good:
            failures.append(name)
    except Exception as e:
        failures.append(name)
        print(f"FAIL {name}: {type(e).__name__}: {e}", flush=True)
        if not isinstance(e, RuntimeError):
            traceback.print_exc()


def cases(m, small):
    big = 1 if small else 4
    f32 = torch.float32
    run_case(m, "causal 512 packed", 1 if small else 4, 1 if small else 16, 512, layout="packed")
    run_case(m, "causal 37", 2, 2, 37)
    run_case(m, "causal 200 interleaved", 2, 2, 200, layout="interleaved")
    run_case(m, "causal 517", 1, 1 * big, 517)
    run_case(m, "causal 1", 2, 3, 1)
    run_case(m, "causal 129 growing scores", 1, 2, 129, growing=True)
    run_case(m, "full 300 growing scores", 1, 2, 300, causal=False, growing=True)
    run_case(m, "cross 32 x 549", 1 if small else 16, 2 if small else 8, 32, 549, causal=False)
    run_case(m, "causal cross 40 x 100", 2, 2, 40, 100)
    run_case(m, "causal cross 150 x 210 lengths", 2, 1, 150, 210, lengths=[210, 140])
    run_case(m, "causal cross 100 x 40 (rows without keys)", 2, 2, 100, 40)
    run_case(m, "full 150 lengths", 4, 1, 150, causal=False, lengths=[150, 64, 1, 97])
    run_case(m, "causal 150 lengths, one 0", 4, 1, 150, lengths=[150, 0, 65, 97])
    run_case(m, "full 150 mask with holes", 2, 2, 150, causal=False, mask="holes")
    run_case(m, "causal 150 mask with holes", 2, 2, 150, mask="holes")
    run_case(m, "full 70 a batch without keys", 2, 2, 70, causal=False, mask="none in batch 0")
    run_case(m, "causal 140 late keys alone", 2, 2, 140, mask="late")
    run_case(m, "causal 140 lengths and holes", 3, 1, 140, mask="holes", lengths=[140, 33, 100])
    run_case(m, "head 32 causal 200 packed", 2, 2, 200, d=32, layout="packed")
    run_case(m, "head 32 cross 32 x 149 holes", 2, 2, 32, 149, d=32, causal=False, mask="holes")
    if not small:
        run_case(m, "batch x heads 1030", 103, 10, 130)
        run_case(m, "full 1024", 2, 4, 1024, causal=False)
    run_case(m, "f32 causal 130 packed", 2, 2, 130, layout="packed", dtype=f32)
    run_case(m, "f32 head 32 full 70 lengths", 3, 2, 70, d=32, causal=False, dtype=f32, lengths=[70, 0, 33])
    run_case(m, "f32 head 20 cross 40 x 90", 2, 2, 40, 90, d=20, dtype=f32)
    run_case(m, "f32 head 128 causal 75 holes", 2, 2, 75, d=128, mask="holes", dtype=f32)
    run_case(m, "f32 head 64 100 x 40 (rows without keys)", 2, 2, 100, 40, dtype=f32)
    run_case(m, "f32 head 64 growing 100", 1, 2, 100, growing=True, dtype=f32)
    for variants in VARIANT_SETS:
        label = "/".join(v or "-" for v in variants)
        run_case(m, f"{label} causal 200 holes", 2, 1, 200, mask="holes", variants=variants)
        run_case(m, f"{label} causal 133 packed", 1, 2, 133, layout="packed", variants=variants)
        run_case(m, f"{label} 100 x 60 lengths", 2, 1, 100, 60, lengths=[60, 31], variants=variants)


VARIANT_SETS = [("_m2n4", "_m1n8", "_m1n8"), ("_m1n8", "_m1n4", "_m1n4")]


# ---------------------------------------------------------------- time
def graph_us(call, count=30, replays=8):
    """Microseconds per call: `count` calls captured as one graph, the median of `replays` replays. On a CPU the median of all calls."""
    if DEVICE == "cpu":
        times = []
        for i in range(count):
            start = time.perf_counter()
            call(i)
            times.append((time.perf_counter() - start) * 1e6)
        return statistics.median(times)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(3):
            call(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            call(i)
    times = []
    for _ in range(replays):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1000 / count)
    return statistics.median(times)


def row(name, us):
    line = f"{name:52s}{us:9.1f} us  {us * 30 / 1000:7.2f} ms for 30 layers"
    lines.append(line)
    print("timed " + line, flush=True)


def timed(name, call, count=30):
    try:
        us = graph_us(call, count)
        row(name, us)
        return us
    except Exception as e:
        lines.append(f"{name:52s} failed: {type(e).__name__}: {str(e)[:200]}")
        print(lines[-1], flush=True)
        try:
            torch.cuda.synchronize()
        except Exception:
            pass
        return None


def timing(modules, published):
    """Prints all times, or with `published` returns those that are published."""
    b, h, t, d, sets = (16, 16, 512, 64, 4) if DEVICE == "cuda" else (1, 2, 32, 64, 2)  # several sets of buffers, so that no call finds its data in the L2 cache
    scale = 1 / math.sqrt(d)
    data = []
    for _ in range(sets):
        qkv = torch.randn(b, t, 3, h, d, device=DEVICE).bfloat16()
        dqkv = torch.empty_like(qkv)
        o, grad = torch.empty(b, t, h, d, device=DEVICE, dtype=torch.bfloat16), torch.randn(b, t, h, d, device=DEVICE).bfloat16()
        lse, delta = torch.empty(b, h, t, device=DEVICE), torch.empty(b, h, t, device=DEVICE)
        data.append(([qkv[:, :, i] for i in range(3)], [dqkv[:, :, i] for i in range(3)], o, grad, lse, delta))

    def call_forward(m, i, variant="", causal=True):
        (q, k, v), _, o, _, lse, _ = data[i % sets]
        forward(m, q, k, v, o, lse, None, None, causal, scale, variant)

    def call_q(m, i, variant="", causal=True):
        (q, k, v), (dq, _, _), o, grad, lse, delta = data[i % sets]
        backward_q(m, q, k, v, o, grad, dq, lse, delta, None, None, causal, scale, variant)

    def call_kv(m, i, variant="", causal=True):
        (q, k, v), (_, dk, dv), _, grad, lse, delta = data[i % sets]
        backward_kv(m, q, k, v, grad, dk, dv, lse, delta, None, None, causal, scale, variant)

    def call_all(i):
        call_forward(base, i)
        call_q(base, i)
        call_kv(base, i)

    heads_first = [[x.transpose(1, 2) for x in (*qkv, grad)] for qkv, _, _, grad, _, _ in data]

    def flash_forward(i):
        q, k, v, _ = heads_first[i % sets]
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)

    def flash_both(i):
        q, k, v, g = heads_first[i % sets]
        out, lse, cq, ck, mq, mk, seed, offset, _ = flash_forward(i)
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(g, q, k, v, out, lse, cq, ck, mq, mk, 0.0, True, seed, offset, scale=scale)

    def autograd_both(i, backend):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        q, k, v, g = heads_first[i % sets]
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(out, (q, k, v), g)

    base = modules["base"]
    if published:
        calls = {"ours": call_all, "flash": flash_both, "cuDNN": lambda i: autograd_both(i, "CUDNN_ATTENTION")}
        if DEVICE == "cpu":
            calls = {"math": lambda i: autograd_both(i, "MATH")}
        found = {}
        for name, call in calls.items():
            try:
                with torch.set_grad_enabled(name != "flash"):
                    found[name] = graph_us(call)
            except Exception as error:  # one that fails must not hide the others
                print(json.dumps({"attention": name, "error": repr(error)[:300]}), flush=True)
        return found

    best = {}
    for what, call, variants in (("forward", call_forward, ("", "_m2n4", "_m1n8")), ("backward_q", call_q, ("", "_m1n8", "_m1n4")),
                                 ("backward_kv", call_kv, ("", "_m1n8", "_m1n4"))):
        for variant in variants:
            us = timed(f"ours {what}{variant}", lambda i: call(base, i, variant))
            if us and us < best.get(what, (1e9, ""))[0]:
                best[what] = (us, variant)
    for label, m in modules.items():
        if label != "base":
            timed(f"ours forward, {label}", lambda i: call_forward(m, i))
            timed(f"ours backward_q + kv, {label}", lambda i: (call_q(m, i), call_kv(m, i)))
    timed("ours backward_q + kv", lambda i: (call_q(base, i), call_kv(base, i)))
    ours = timed("ours forward + backward (defaults)", call_all)
    names = [best.get(w, (0, ""))[1] for w in ("forward", "backward_q", "backward_kv")]
    timed("ours forward + backward (best: " + "/".join(n or "-" for n in names) + ")",
          lambda i: (call_forward(base, i, names[0]), call_q(base, i, names[1]), call_kv(base, i, names[2])))
    timed("ours forward + backward, not causal",
          lambda i: (call_forward(base, i, "", False), call_q(base, i, "", False), call_kv(base, i, "", False)))

    x = [torch.randn(b, t, h, d, device="cuda") for _ in range(8)]
    lse, delta = data[0][4], data[0][5]
    timed("ours f32 forward", lambda i: forward(base, *x[:3], x[3], lse, None, None, True, scale), 4)
    timed("ours f32 backward", lambda i: (backward_q(base, *x[:4], x[4], x[5], lse, delta, None, None, True, scale),
                                          backward_kv(base, *x[:3], x[4], x[6], x[7], lse, delta, None, None, True, scale)), 4)

    with torch.no_grad():
        timed("torch SDPA flash forward", flash_forward)
        flash = timed("torch SDPA flash forward + backward", flash_both)
    timed("torch SDPA flash forward + backward (autograd)", lambda i: autograd_both(i, "FLASH_ATTENTION"))
    timed("torch SDPA cuDNN forward + backward (autograd)", lambda i: autograd_both(i, "CUDNN_ATTENTION"))
    if ours and flash:
        lines.append(f"ours / torch flash, forward + backward: {ours / flash:.3f}")


def main():
    published = "--times" in sys.argv
    if DEVICE == "cpu" and not published:
        sys.exit("on a CPU there is only --times")
    torch.zeros(1, device=DEVICE)
    arch = "sm_%d%d" % torch.cuda.get_device_capability() if DEVICE == "cuda" else "sm_90"
    files = ["prelude.cuh", "attention.cuh", "attention_tiles.cuh", "attention_bf16.cu", "attention_f32.cu"]
    text = "\n".join(open(FOLDER + "/" + name).read() for name in files)
    options = {"base": ["-DATTENTION_VARIANTS"], "head group 32": ["-DHEAD_GROUP=32"], "head group all": ["-DHEAD_GROUP=100000"]}
    if published:
        options = {"base": []}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        images = dict(zip(options, pool.map(lambda o: compile_text(text, o, arch), options.values())))
    if published:
        modules = {label: Module(image) if DEVICE == "cuda" else None for label, image in images.items()}
        name = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
        print(json.dumps({"device": name, "torch": torch.__version__, "attention_us": timing(modules, True)}), flush=True)
        return 0
    print(f"compiled for {arch} in {time.time() - START:.1f} s, {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    modules = {label: Module(image) for label, image in images.items()}
    try:
        cases(modules["base"], False)
    except Exception:
        traceback.print_exc()
        failures.append("cases")
    try:
        timing(modules, False)
    except Exception:
        traceback.print_exc()
    print(f"\n---- B=16 H=16 T=512 D=64 causal, bf16, packed qkv; {torch.cuda.get_device_name()}")
    print("\n".join(lines))
    print(f"{len(failures)} failures: {failures}   {time.time() - START:.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
