//! Values of arguments that several commands share.

use myxtts_run::plan::StageKind;
use myxtts_tensor::Device;

use crate::failure::UsageError;

/// Parses `--stage`: a stage with training steps.
pub fn stage(name: &str) -> Result<StageKind, String> {
    match name {
        "dvae" => Ok(StageKind::Dvae),
        "gpt" => Ok(StageKind::Gpt),
        "decoder" => Ok(StageKind::Decoder),
        _ => Err("expected dvae, gpt or decoder".into()),
    }
}

/// Parses `--device`; `None` for `auto`.
pub fn device(name: &str) -> anyhow::Result<Option<Device>> {
    match name {
        "auto" => Ok(None),
        "cuda" => Ok(Some(Device::Cuda(0))),
        name => name.parse().map(Some).map_err(|_| {
            UsageError(format!(
                "--device {name}: expected auto, cpu, cuda or cuda:N (`myxtts devices` lists them)"
            ))
            .into()
        }),
    }
}
