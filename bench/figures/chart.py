"""The chart of README.md."""

import statistics

from raw import number, values
from tables import SIZES, on_gpu, rate, sides

STYLE = """
  .t { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f; }
  .h { font-weight: 600; font-size: 14px; }
  .s { fill: #57606a; font-size: 12px; }
  .a { fill: #0a7d5a; } .b { fill: #9aa4af; } .line { stroke: #d0d7de; }
  @media (prefers-color-scheme: dark) {
    .t { fill: #e6edf3; } .s { fill: #9198a1; } .a { fill: #2fbf8f; } .b { fill: #6e7781; } .line { stroke: #30363d; }
  }
"""


def chart():
    """Draws clips per second and the share of the time a step is on the GPU, for MyXTTS and the PyTorch loop, by GPT size."""
    sizes = [size for size in SIZES if size[0] != "GPT `small`, batch 16"]
    width, top, group, left, bar, second, share_bar = 860, 74, 70, 190, 300, 640, 150
    height = top + group * len(sizes) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'aria-label="Training speed and GPU use of MyXTTS and of a PyTorch loop">',
        f"<style>{STYLE}</style>",
        f'<text class="t h" x="{left}" y="22">Clips per second in training</text>',
        f'<text class="t s" x="{left}" y="42">each size to its own scale</text>',
        f'<text class="t h" x="{second}" y="22">Time a step is on the GPU</text>',
        f'<text class="t s" x="{second}" y="42">measured by device events</text>',
        f'<line class="line" x1="0" y1="56.5" x2="{width}" y2="56.5"/>',
    ]
    for at, (name, preset, batch, peer) in enumerate(sizes):
        ours, theirs = sides(preset, batch, "resident", peer)
        fast, slow = rate(ours).median, rate(theirs).median
        high, low = statistics.median(values(ours, on_gpu)), statistics.median(values(theirs, on_gpu))
        y = top + at * group
        label = {"v2": "XTTS-v2's size", "normal": "normal", "small": "small", "tiny": "tiny"}[preset]
        out += [
            f'<text class="t h" x="0" y="{y + 17}">{label}</text>',
            f'<text class="t s" x="0" y="{y + 36}">{peer[0]} x {peer[1]}, batch {batch}</text>',
            f'<rect class="a" x="{left}" y="{y}" width="{bar}" height="20" rx="3"/>',
            f'<text class="t" x="{left + bar + 8}" y="{y + 15}">{number(fast)}  ({fast / slow:.1f}x)</text>',
            f'<rect class="b" x="{left}" y="{y + 24}" width="{max(2, bar * slow / fast):.1f}" height="20" rx="3"/>',
            f'<text class="t" x="{left + bar * slow / fast + 8:.1f}" y="{y + 39}">{number(slow)}</text>',
            f'<rect class="a" x="{second}" y="{y}" width="{share_bar * high:.1f}" height="20" rx="3"/>',
            f'<text class="t" x="{second + share_bar * high + 8:.1f}" y="{y + 15}">{high * 100:.1f} %</text>',
            f'<rect class="b" x="{second}" y="{y + 24}" width="{share_bar * low:.1f}" height="20" rx="3"/>',
            f'<text class="t" x="{second + share_bar * low + 8:.1f}" y="{y + 39}">{low * 100:.0f} %</text>',
        ]
    y = height - 22
    out += [
        f'<rect class="a" x="0" y="{y}" width="12" height="12" rx="2"/><text class="t s" x="18" y="{y + 10}">MyXTTS, from its cache</text>',
        f'<rect class="b" x="{left}" y="{y}" width="12" height="12" rx="2"/>'
        f'<text class="t s" x="{left + 18}" y="{y + 10}">PyTorch loop like Coqui\'s trainer, bf16, from WAV files; one H200, November 2026</text>',
        "</svg>",
    ]
    return "\n".join(out) + "\n"
