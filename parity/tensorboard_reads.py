"""Reads event files of MyXTTS with the real TensorBoard and compares them with the data that was written.

    pip install tensorboard
    MYXTTS_PYTHON=python3 cargo test -p myxtts-run --test run -- --ignored tensorboard
    MYXTTS_PYTHON=python3 cargo test -p myxtts --test cli -- --ignored tensorboard

The first test writes the folder that this script reads; the expected content is in both. The second trains for a few steps and
calls this script with `--run runs/NAME`: every sample in the run's folder must be in its TensorBoard files, audio and image.
"""

import json
import math
import pathlib
import sys

from tensorboard import version
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer as PluginMultiplexer


def check_run(run):
    """Checks that the samples on disk and in the events are those that TensorBoard shows."""
    # All of them: by default it keeps only a few per tag.
    everything = {"scalars": 0, "images": 0, "audio": 0, "tensors": 0}
    board = EventMultiplexer(size_guidance=everything, purge_orphaned_data=False)
    board = board.AddRunsFromDirectory(str(run / "tensorboard"))
    board.Reload()
    sounds, pictures, scalars = {}, {}, set()
    for name in board.Runs():
        told = board.GetAccumulator(name)
        for tag in told.Tags()["audio"]:
            sounds.update(((tag, one.step), one) for one in told.Audio(tag))
        for tag in told.Tags()["images"]:
            pictures.update(((tag, one.step), one) for one in told.Images(tag))
        scalars.update(told.Tags()["scalars"])
    samples = {}
    for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["kind"] == "sample":
            samples[event["file"]] = event
    assert samples, "the run has no samples"
    for file, event in samples.items():
        wav = (run / "samples" / file).read_bytes()
        png = (run / "samples" / file).with_suffix(".png").read_bytes()
        stage = event["stage"]
        found = [one for (tag, _), one in sounds.items() if tag.startswith(f"{stage}/spoken/")]
        same = [one for one in found if one.encoded_audio_string == wav]
        assert same, f"{file} is not among the {len(found)} audio samples of {stage}"
        assert same[0].content_type == "audio/wav" and same[0].sample_rate in (22050.0, 24000.0), file
        assert abs(same[0].length_frames / same[0].sample_rate - event["seconds"]) < 1e-3, file
        found = [one for (tag, _), one in pictures.items() if tag.startswith(f"{stage}/mel/")]
        same = [one for one in found if one.encoded_image_string == png]
        assert same, f"the image of {file} is not among the {len(found)} of {stage}"
        # One mel, or two on top of each other with a line in between.
        assert same[0].height == (161 if stage == "dvae" else 80) and same[0].width > 1, file
    waits = sorted(tag for tag in scalars if tag.endswith("/wait"))
    assert waits, scalars
    print(f"tensorboard {version.VERSION} has all {len(samples)} samples of the run, and {', '.join(waits)}")


if sys.argv[1] == "--run":
    check_run(pathlib.Path(sys.argv[2]))
    sys.exit()

folder = pathlib.Path(sys.argv[1])
png = (folder / "expected.png").read_bytes()
wav = (folder / "expected.wav").read_bytes()

# The older reader has a table per kind. It drops steps from 200 on, which the second file repeats.
old = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "audio": 0, "tensors": 0})
old.Reload()
tags = old.Tags()
assert tags["scalars"] == ["loss/gpt", "rate", "nothing"], tags
assert [(e.step, e.value) for e in old.Scalars("loss/gpt")] == [(1, 2.5), (250, 0.75)], old.Scalars("loss/gpt")
assert old.Scalars("rate") == old.Images("mel/سلام") == old.Audio("voice") == [], "orphaned events are still shown"

# The newer one, which TensorBoard itself uses, converts everything to tensors. Only the first file here.
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

# And the oldest interface: images and audio with their sizes.
plain = EventMultiplexer(purge_orphaned_data=False).AddRunsFromDirectory(str(alone))
plain.Reload()
(run,) = plain.Runs()
(image,) = plain.GetAccumulator(run).Images("mel/سلام")
assert (image.width, image.height, image.encoded_image_string) == (3, 2, png)
(audio,) = plain.GetAccumulator(run).Audio("voice")
assert (audio.sample_rate, audio.length_frames, audio.content_type) == (24000.0, 10, "audio/wav")
assert audio.encoded_audio_string == wav

print(f"tensorboard {version.VERSION} reads everything")
