"""The rows that measure.py measures: which program or script, with which arguments.

A row is measured by one start of its program. Rows of one part take turns: every row once, then every row again. `{clips}`, `{models}` and
`{work}` are folders that measure.py makes. The tables of bench/figures/figures.py find their rows in the reports; where a report does not
say what was measured, by the name of the row."""

from dataclasses import dataclass

# Parts by importance, and the file that has their lines.
FILES = {
    "training": "training", "engine": "engine", "decode": "decode", "speak": "speak", "sizes": "training", "ways": "ways",
    "stages": "training", "diagnose": "diagnose", "ranks": "ranks",
}
PLANTS = (
    "healthy slow-disk slow-decode slow-worker tiny-buffer upload-lock pageable-upload shape-churn periodic-stall cpu-hog slow-step noisy-step"
).split()


@dataclass(frozen=True)
class Row:
    part: str
    name: str
    side: str  # "myxtts" or "peer"
    program: str  # a program of MyXTTS, a .py script that runs in peer.py, or a .sh script
    arguments: tuple
    seconds: float  # first guess of how long one run takes, with its start

    @property
    def key(self):
        return f"{self.name}/{self.side}"


def words(text):
    return tuple(text.split(" ")) if text else ()


def bench(part, name, arguments, only, seconds):
    """A row of `myxtts bench`. `only` is the way of feeding; None for all."""
    shown = ("--only", only) if only else ()
    return Row(part, name, "myxtts", "myxtts", ("bench", "{clips}", "--json", "--set", "data.vocab_size=120", *words(arguments), *shown), seconds)


def loop(part, name, arguments, seconds):
    return Row(part, name, "peer", "bench/training/torch_loop.py", ("{clips}", "--json", "-", *words(arguments)), seconds)


def program(part, name, program, arguments, seconds):
    return Row(part, name, "myxtts", program, words(arguments), seconds)


def peer(part, name, script, arguments, seconds):
    return Row(part, name, "peer", script, words(arguments), seconds)


def on_gpu():
    """Sizes and steps of the published figures."""
    rows = [
        bench("training", "v2", "--preset v2 --set data.batch_size=32 --steps 120", "resident", 25),
        loop("training", "v2", "--batch 32 --layers 30 --width 1024 --heads 16", 30),
        bench("training", "v2-no-cache", "--preset v2 --set data.batch_size=32 --steps 60", "no cache", 20),
        loop("training", "v2-fp32", "--batch 8 --precision fp32 --layers 30 --width 1024 --heads 16", 25),
    ]
    middle, small = "--layers 12 --width 512 --heads 8 --vocabulary 1026", "--layers 8 --width 256 --heads 4 --vocabulary 1026"
    rows += [
        program("engine", "gpt-1024", "gpt_step", "--json --busy --warm 60 --steps 60", 12),
        peer("engine", "gpt-1024", "bench/engine/torch_gpt.py", "30 1024 16 7000", 60),
        program("engine", "gpt-512", "gpt_step", f"--json --busy --warm 300 --steps 200 {middle}", 8),
        peer("engine", "gpt-512", "bench/engine/torch_gpt.py", "12 512 8 1026 --warm 40 --steps 100", 40),
        program("engine", "gpt-256", "gpt_step", f"--json --busy --warm 800 --steps 300 {small}", 8),
        peer("engine", "gpt-256", "bench/engine/torch_gpt.py", "8 256 4 1026 --warm 40 --steps 100 --modes eager,graph", 12),
        program("engine", "vocoder", "hifigan_step", "--json", 8),
        peer("engine", "vocoder", "bench/engine/torch_hifigan.py", "16 32", 20),
        program("engine", "vocoder-two-streams", "hifigan_step", "--json --two-streams", 8),
        peer("engine", "vocoder-one", "bench/engine/torch_hifigan.py", "1 32", 12),
        program("engine", "gpt-1024-recompute-all", "gpt_step", "--json --warm 20 --steps 40 --recompute all", 8),
        peer("engine", "attention", "bench/engine/attention.py", "crates/tensor/src/kernels --times", 30),
        program("decode", "decode", "decode", "--batches 1,8,64", 15),
        peer("decode", "decode", "bench/decode/torch_decode.py", "", 60),
        program("speak", "plain", "speed", "{models}/plain", 25),
        program("speak", "guided", "speed", "{models}/guided --repeat 3 --book 128", 20),
        program("speak", "memory", "speed", "{models}/plain --codes 20 --repeat 1 --book 0 --utterances 1000", 30),
        # `small` with batch 16 is one of the ways of feeding below: 300 steps there and here.
        bench("sizes", "normal-64", "--preset normal --set data.batch_size=64 --steps 200", "resident", 20),
        loop("sizes", "normal-64", "--batch 64 --layers 12 --width 512 --heads 8", 20),
        bench("sizes", "small-64", "--preset small --set data.batch_size=64 --steps 200", "resident", 12),
        loop("sizes", "small-64", "--batch 64 --layers 8 --width 256 --heads 4", 15),
        bench("sizes", "tiny-64", "--preset tiny --set data.batch_size=64 --steps 200", "resident", 12),
        loop("sizes", "tiny-64", "--batch 64 --layers 4 --width 128 --heads 4", 15),
        bench("sizes", "small-16", "--preset small --set data.batch_size=16 --steps 300", "resident", 12),
        loop("sizes", "small-16", "--batch 16 --layers 8 --width 256 --heads 4", 15),
        bench("ways", "ways", "--preset small --set data.batch_size=16 --steps 300", None, 60),
        bench("ways", "normal-no-cache", "--preset normal --set data.batch_size=64 --steps 100", "no cache", 20),
    ]
    for preset in ("small", "v2"):
        for stage in ("dvae", "decoder"):
            rows.append(bench("stages", f"{stage}-{preset}", f"--preset {preset} --stage {stage} --steps 60", "buffered 12", 20))
    settings = "--preset small --batch-size 16 --num-batches 200 --set data.vocab_size=120"
    return rows + [diagnosis(plant, "cuda", settings, 20) for plant in PLANTS] + [ranks("timing", "", 90), ranks("equal,resume", "", 160)]


def diagnosis(plant, device, settings, seconds):
    """One fault under the seed {run}; bench/diagnose/run.sh plants all of them in the same way."""
    asked = f"diagnose {{clips}} --device {device} {settings} --set training.seed={{run}} --plant {plant} --json"
    return Row("diagnose", plant, "myxtts", "myxtts", words(asked), seconds)


def ranks(groups, more, seconds):
    name = "ranks-" + groups.split(",")[0]
    return Row("ranks", name, "myxtts", "bench/ranks/run.sh", words(f"{{work}}/{name}-{{run}} --only {groups}{more}"), seconds)


def on_cpu():
    """One tiny row of every kind, so that each script runs; `decode` needs a GPU. The figures mean nothing."""
    tiny = "--device cpu --preset tiny --set data.batch_size=4 --steps 4 --warm 1"
    step, peer_step = "--device cpu --json --layers 2 --width 64 --heads 2 --vocabulary 100 --batch 2 --time 16 --steps 3 --warm 1", "--device cpu"
    return [
        bench("training", "v2", tiny, "buffered 12", 20),
        loop("training", "v2", "--device cpu --batch 2 --workers 2 --steps 13 --warm 10 --layers 1 --width 64 --heads 2", 20),
        bench("training", "v2-no-cache", tiny, "no cache", 20),
        program("engine", "gpt-1024", "gpt_step", step, 5),
        peer("engine", "gpt-1024", "bench/engine/torch_gpt.py", f"2 64 2 100 2 16 --steps 3 --warm 1 --modes eager,compile,f32 {peer_step}", 60),
        program("engine", "vocoder", "hifigan_step", "--device cpu --json --batch 1 --frames 2 --steps 1 --warm 0", 10),
        peer("engine", "vocoder", "bench/engine/torch_hifigan.py", f"1 2 --steps 1 --warm 1 {peer_step}", 10),
        peer("engine", "attention", "bench/engine/attention.py", f"crates/tensor/src/kernels --times {peer_step}", 60),
        peer("decode", "decode", "bench/decode/torch_decode.py", f"--layers 2 --width 64 --heads 2 --codes 4 --batches 1,2 {peer_step}", 10),
        program("speak", "plain", "speed", "{models}/plain --cpu --codes 4 --repeat 1 --book 2 --at-once 2 --utterances 2", 30),
        bench("sizes", "small-64", tiny, "buffered 12", 20),
        bench("ways", "ways", tiny, None, 40),
        bench("stages", "dvae-small", f"{tiny} --stage dvae", "buffered 12", 20),
        diagnosis("healthy", "cpu", "--preset tiny --batch-size 4 --num-batches 20 --set data.vocab_size=120", 30),
    ]
