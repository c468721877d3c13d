"""Sizes of golden sets, by name. Every test reads them from the files; they are defined only here."""


def vocoder(inputs, speaker, channels, frames):
    return {
        "decoder_input_dim": inputs,
        "d_vector_dim": speaker,
        "upsample_initial_channel_decoder": channels,
        "frames": frames,
        "upsample_rates": [8, 8, 2, 2],
        "upsample_kernel_sizes": [16, 16, 4, 4],
        "resblock_kernel_sizes": [3, 7, 11],
        "resblock_dilations": [[1, 3, 5]] * 3,
        "input_sample_rate": 22050,
        "output_sample_rate": 24000,
        "output_hop_length": 256,
        "ar_mel_length_compression": 1024,
    }


def codes(hidden, tokens, width, frames=0):
    frames = {"frames": frames, "odd_frames": frames - 3} if frames else {}
    return {
        "channels": 80,
        "positional_dims": 1,
        "num_layers": 2,
        "stride": 2,
        "kernel_size": 3,
        "num_resnet_blocks": 3,
        "use_transposed_convs": False,
        "hidden_dim": hidden,
        "num_tokens": tokens,
        "codebook_dim": width,
        **frames,
    }


def transformer(layers, width, heads, texts, text_tokens, start, audio_tokens, codes):
    return {
        "layers": layers,
        "model_dim": width,
        "heads": heads,
        "max_text_tokens": texts,
        "max_mel_tokens": codes,
        "max_prompt_tokens": 70,
        "number_text_tokens": text_tokens,
        "start_text_token": start,
        "stop_text_token": 0,
        "num_audio_tokens": audio_tokens + 2,
        "start_audio_token": audio_tokens,
        "stop_audio_token": audio_tokens + 1,
        "use_perceiver_resampler": True,
        "code_stride_len": 1024,
    }


# Stored in the repository, so small. The perceiver has 8 heads of 64 at any width, which dominates the size: at width 64 the
# weights and gradients of the GPT alone would be 4.4 MB. Two heads, because one cannot distinguish whether queries, keys and
# values are interleaved by head or concatenated, and the two attentions of XTTS differ in that.
SMALL = {
    "clips": {"synthetic-1": 1.05, "synthetic-2": 0.45},
    "gpt": transformer(2, 16, 2, texts=24, text_tokens=60, start=41, audio_tokens=32, codes=40),
    "gpt_batch": {"texts": [13, 6, 10], "codes": [15, 8, 12], "frames": 29},
    "decode_texts": [7, 15],
    "dvae": codes(12, tokens=32, width=10, frames=32),
    "hifigan": vocoder(inputs=32, speaker=12, channels=16, frames=7),
    "checkpoint": {
        "gpt": transformer(1, 8, 2, texts=24, text_tokens=48, start=41, audio_tokens=16, codes=40),
        "dvae": codes(4, tokens=16, width=6),
        "d_vector_dim": 12,
        "vocoder_channels": 16,
        "speaker_filters": [8, 8, 8, 8],
    },
}

# For CUDA, whose attention supports only heads of 32 or 64.
CUDA = {
    **SMALL,
    "gpt": transformer(2, 64, 2, texts=24, text_tokens=60, start=41, audio_tokens=32, codes=40),
    "dvae": codes(32, tokens=32, width=16, frames=64),
    "hifigan": vocoder(inputs=64, speaker=16, channels=32, frames=13),
}

PRESETS = {"small": SMALL, "cuda": CUDA}
