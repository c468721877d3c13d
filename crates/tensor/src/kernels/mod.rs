//! The CUDA C kernels. They contain no `#include`: NVRTC compiles them at first use, without a CUDA toolkit.

/// One line for every `.cu` file in this folder, which a test enforces. A file that compiles slowly is compiled in
/// parts, in parallel: each part names its own tiles. Code shared by several files is in `.cuh` files prepended to
/// them.
macro_rules! sources {
    ($($name:literal $([$tiles:literal])? $(after $($header:literal)+)?),* $(,)?) => {
        &[$(($name, concat!(
            $("#define TILES ", $tiles, "\n#line 1\n",)?
            $(
                $("#line 1 \"", $header, ".cuh\"\n", include_str!(concat!($header, ".cuh")),)+
                "#line 1 \"", $name, ".cu\"\n",
            )?
            include_str!(concat!($name, ".cu"))
        ))),*]
    };
}

/// Name and text of every kernel file, or of each part of one.
pub const SOURCES: &[(&str, &str)] = sources![
    "activation",
    "adamw",
    "addends",
    "arithmetic",
    "attention_bf16" after "attention" "attention_tiles",
    "attention_f32" after "attention",
    "cached_attention",
    "cast",
    "channel_norm",
    "clock",
    "column_sum",
    "columns",
    "conv1d"["0x012"],
    "conv1d"["0x00c"],
    "conv1d"["0x060"],
    "conv1d"["0x700"],
    "conv1d_single",
    "conv1d_weight"["0x003"],
    "conv1d_weight"["0x00c"],
    "conv1d_weight"["0x030"],
    "conv1d_weight"["0x81c0"],
    "cross_entropy",
    "decode_attention" after "decode",
    "decode_linear" after "decode",
    "decode_sample" after "decode",
    "dot",
    "dropout",
    "embedding",
    "geglu",
    "norm",
    "quantize",
    "reduce",
    "rms_norm",
    "slice",
    "softmax",
    "stft",
    "time_map",
    "time_sum",
    "transpose",
    "weight_norm",
];

/// Text prepended to every kernel file.
pub const fn prelude() -> &'static str {
    include_str!("prelude.cuh")
}

/// The text of a kernel file by its name.
pub fn source(name: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(other, _)| *other == name).map(|(_, text)| *text)
}

/// The file name of a kernel: `cast.cu` for `cast`.
pub fn file_name(name: &str) -> String {
    format!("{name}.cu")
}

/// The text that is compiled; `#line` directives make compiler messages name the real file and line.
pub fn with_prelude(name: &str, text: &str) -> String {
    let (prelude, file) = (prelude(), file_name(name));
    format!("#line 1 \"prelude.cuh\"\n{prelude}\n#line 1 \"{file}\"\n{text}")
}
