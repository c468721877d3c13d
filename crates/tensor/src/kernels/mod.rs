//! The kernels: CUDA C files without a single `#include`. NVRTC compiles them at first use, and nothing of a CUDA
//! toolkit is needed.

/// One line for every `.cu` file in this folder; a test compares.
macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!($name, ".cu")))),*]
    };
}

/// Name and text of every kernel file.
pub const SOURCES: &[(&str, &str)] = sources![
    "activation",
    "adamw",
    "addends",
    "arithmetic",
    "attention",
    "cast",
    "channel_norm",
    "column_sum",
    "columns",
    "conv1d",
    "conv1d_single",
    "conv1d_weight",
    "cross_entropy",
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

/// What every kernel file starts with.
pub const fn prelude() -> &'static str {
    include_str!("prelude.cuh")
}

/// The text of a kernel file by its name.
pub fn source(name: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(other, _)| *other == name).map(|(_, text)| *text)
}

/// `cast.cu` of `cast`.
pub fn file_name(name: &str) -> String {
    format!("{name}.cu")
}

/// The text that is compiled: the compiler's messages name the file and the line in it that a person can open.
pub fn with_prelude(name: &str, text: &str) -> String {
    let (prelude, file) = (prelude(), file_name(name));
    format!("#line 1 \"prelude.cuh\"\n{prelude}\n#line 1 \"{file}\"\n{text}")
}
