"""Reads event files of MyXTTS with the real TensorBoard and compares them with what was written.

    pip install tensorboard
    MYXTTS_PYTHON=python3 cargo test -p myxtts-run --test run -- --ignored tensorboard

The test writes the folder that this script is given; what must be in it stands in both.
"""

import math
import pathlib
import sys

from tensorboard import version
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer as PluginMultiplexer

folder = pathlib.Path(sys.argv[1])
png = (folder / "expected.png").read_bytes()
wav = (folder / "expected.wav").read_bytes()

# The older reader has a table for each kind. It forgets steps from 200 on, told again by the second file.
old = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "audio": 0, "tensors": 0})
old.Reload()
tags = old.Tags()
assert tags["scalars"] == ["loss/gpt", "rate", "nothing"], tags
assert [(e.step, e.value) for e in old.Scalars("loss/gpt")] == [(1, 2.5), (250, 0.75)], old.Scalars("loss/gpt")
assert old.Scalars("rate") == old.Images("mel/سلام") == old.Audio("voice") == [], "orphans are still shown"

# The newer one, which the program itself uses, turns everything into tensors. Only the first file here.
first = sorted(folder.glob("events.out.tfevents.*"))[0]
alone = folder / "alone"
alone.mkdir()
(alone / first.name).write_bytes(first.read_bytes())
new = PluginMultiplexer().AddRunsFromDirectory(str(alone))
new.Reload()
(run,) = new.Runs()
plugins = {tag: new.SummaryMetadata(run, tag).plugin_data.plugin_name for tag in new.Runs()[run]["tensors"]}
assert plugins == {
    "loss/gpt": "scalars",
    "rate": "scalars",
    "nothing": "scalars",
    "mel/سلام": "images",
    "voice": "audio",
    "spoken": "text",
}, plugins


def tensor(tag, step):
    (event,) = [e for e in new.Tensors(run, tag) if e.step == step]
    proto = event.tensor_proto
    return list(proto.float_val) or list(proto.string_val) or proto


def number(tag, step):
    from tensorboard.util import tensor_util

    (event,) = [e for e in new.Tensors(run, tag) if e.step == step]
    return float(tensor_util.make_ndarray(event.tensor_proto))


assert number("loss/gpt", 1) == 2.5 and number("loss/gpt", 300) == 1.25
assert abs(number("rate", 300) - 1e-4) < 1e-10 and math.isnan(number("nothing", 300))
width, height, picture = tensor("mel/سلام", 300)[:3]
assert (width, height, picture) == (b"3", b"2", png)
assert tensor("voice", 300)[0] == wav
assert tensor("spoken", 300)[0].decode() == "Hello, **world**. درود"

# And the oldest face of all: pictures and sound with their sizes.
plain = EventMultiplexer(purge_orphaned_data=False).AddRunsFromDirectory(str(alone))
plain.Reload()
(run,) = plain.Runs()
(image,) = plain.GetAccumulator(run).Images("mel/سلام")
assert (image.width, image.height, image.encoded_image_string) == (3, 2, png)
(audio,) = plain.GetAccumulator(run).Audio("voice")
assert (audio.sample_rate, audio.length_frames, audio.content_type) == (24000.0, 10, "audio/wav")
assert audio.encoded_audio_string == wav

print(f"tensorboard {version.VERSION} reads all of it")
