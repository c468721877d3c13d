"""The measured rows of README.md and README.fa.md."""

from raw import MANIFEST, Sample, letters, percent, reports, values
from tables import busy, decode_row, first_sound, gpt_step, median_ms, older_loop, rate, sides, table, SIZES

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def used(group, *samples):
    """Letters of the files that these runs are from."""
    return [letter for letter in MANIFEST[group] if letter in letters(*samples).split(", ")]


def day(date):
    _, month, number = date.split("-")
    return f"{MONTHS[int(month) - 1]} {int(number)}"


def dates(group, files):
    known = sorted({report.date for report in reports(group) if report.letter in files and report.date})
    return day(known[0]) if len(known) == 1 else f"{day(known[0])} to {day(known[-1]).split(' ')[-1] if known[0][:7] == known[-1][:7] else day(known[-1])}"


def measured():
    """The five rows: what, MyXTTS, the peer's name and figure, the group of its files, their letters, and the command."""
    trained, loop = sides("v2", 32, "resident", SIZES[0][3])
    with_busy = [pair for pair in trained if pair[1].get("on_device") is not None]
    step, modes = gpt_step(1024)
    sound = first_sound()
    many, peers = decode_row(64)
    return [
        ("training, batch 32, from a cache", rate(trained).text(), "", rate(loop).text(), "training", used("training", trained, loop), "bench/training/run.sh"),
        ("GPU busy (kernels run) in training", busy(trained, lambda share: percent(share) + " %"), "", "", "training", used("training", with_busy), "bench/training/run.sh"),
        ("one step, 16 x 512 tokens, bf16", median_ms(step).text(), "compiled: ", median_ms(modes["compile"]).text(), "engine", used("engine", step, modes["compile"]), "bench/engine/gpu.sh"),
        ("text to first audible sound", Sample(values(sound), "ms").text(), "", "", "speaking", used("speaking", sound), "bench/speak/run.sh"),
        ("64 texts at once, without vocoder", Sample(values(many), "codes/s").text(), "Hugging Face, f32: ", Sample(values(peers["f32"])).text(), "speaking", used("speaking", many, peers["f32"]), "bench/decode/run.sh"),
    ]


def years():
    found = {report.date[:4] for group in ("training", "engine", "speaking") for report in reports(group) if report.date}
    return " and ".join(sorted(found))


def readme():
    rows = []
    for what, mine, who, theirs, group, files, command in measured():
        raw = ", ".join(f"[{at}](bench/results/{MANIFEST[group][letter]})" for at, letter in enumerate(files, 1))
        rows.append([what, mine, f"{who}{theirs}", dates(group, files), f"`{command}`", raw])
    return table([f"XTTS-v2's size, one H200, {years()}", "MyXTTS: median (range)", "PyTorch, same machine", "date", "command", "raw"], rows)


def without_cache():
    return rate(sides("v2", 32, "no cache", SIZES[0][3])[0])


def readme_note():
    note = f"Without a cache MyXTTS reaches {without_cache().text()}. Speaking used random weights."
    return f"{note} {older_loop(names=False)}".strip()


# --- Persian ----------------------------------------------------------------------------------------------------------

WORDS = [
    (", n = ", "، n = "), (", preliminary", "، مقدماتی"), (" clips/s", " قطعه در ثانیه"), (" codes/s", " کد در ثانیه"), (" ms", " میلی‌ثانیه"),
    (" to ", " تا "), ("compiled: ", "با compile: \u200f"), ("Hugging Face, f32: ", "Hugging Face،\u200f f32: \u200f"), (" %", "٪"),
]
NAMES = [
    "آموزش، دستهٔ ۳۲تایی، از کش", "سهم زمانی که GPU در آموزش مشغول است", "یک گام، ۱۶ × ۵۱۲ توکن، bf16", "از متن تا نخستین صدای شنیدنی",
    "۶۴ متن هم‌زمان، بدون ووکودر",
]


def persian(shown):
    for english, own in WORDS:
        shown = shown.replace(english, own)
    keep = shown.replace("f32", "\0")
    digits = str.maketrans("0123456789.,", "۰۱۲۳۴۵۶۷۸۹٫٬")
    return keep.translate(digits).replace("\0", "f32")


def readme_fa():
    rows = [[name, persian(mine), persian(who + theirs)] for name, (_, mine, who, theirs, *_) in zip(NAMES, measured())]
    return table(["کار", "MyXTTS: میانه (دامنه)", "PyTorch روی همان نوع دستگاه"], rows)


def readme_fa_note():
    note = f"MyXTTS بدون کش به {persian(without_cache().text())} می‌رسد. در اندازه‌گیری گفتار، وزن‌های مدل تصادفی بودند."
    if older_loop():
        note += "\nعددهای PyTorch در سطر اول از حلقهٔ قدیمی‌تری با همین روش است، نه از خود `bench/training/torch_loop.py`."
    return note
