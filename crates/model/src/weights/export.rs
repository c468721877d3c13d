//! Converts a model folder to the files of an XTTS-v2 release, which Coqui's own code can load.

use std::path::Path;

use myxtts_run::durable::{self, Disk, Writer};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::archive::ArchiveWriter;
use super::buffers::{self, Buffer};
use super::folder::{CONFIG, ModelFolder, Part, TOKEN_HEAD_BIAS, TOKEN_HEAD_WEIGHT, VOCABULARY};
use super::pickle_writer::PickleWriter;
use super::sizes::{Shapes, Sizes};
use super::tensors::View;
use super::{WeightsError, python_json};

/// Result of an export.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExportReport {
    /// Names of the files written.
    pub files: Vec<String>,
    /// Number of tensors in `model.pth`.
    pub tensors: usize,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// Files that an export may write.
const FILES: [&str; 6] = ["model.pth", "dvae.pth", "mel_stats.pth", "speakers_xtts.pth", VOCABULARY, CONFIG];

/// Writes a release: `model.pth`, and the other files for which the folder has content.
pub fn export(
    folder: &ModelFolder,
    disk: &dyn Disk,
    output: &Path,
    replace: bool,
) -> Result<ExportReport, WeightsError> {
    if !replace && FILES.iter().any(|file| output.join(file).exists()) {
        return Err(WeightsError::Occupied { path: output.to_owned(), found: "files of a model" });
    }
    let parts = [Part::Gpt, Part::Decoder, Part::Speaker];
    for part in parts {
        if folder.part(part).is_none() {
            let what = format!("it has no {}, which a release needs", part.file());
            return Err(WeightsError::content(folder.path(), what));
        }
    }
    durable::create_folder(disk, output)?;
    let mut report = ExportReport::default();

    let mut model: Vec<(&str, View)> = parts.iter().flat_map(|&part| tensors(folder, part)).collect();
    let shapes = model.iter().map(|(name, view)| ((*name).to_owned(), view.shape.to_vec())).collect();
    let buffers = buffers::missing(&shapes);
    model.extend(buffers.iter().map(|Buffer { name, kind, shape, bytes }| {
        (name.as_str(), View { kind: *kind, shape: &shape[..], bytes: &bytes[..] })
    }));
    report.tensors = model.len();
    let mut pickle = PickleWriter::new();
    pickle.begin_dict();
    pickle.text("model");
    write_dict(&mut pickle, &model);
    pickle.end_dict();
    write_file(disk, output, "model.pth", pickle, &model, &mut report)?;

    let dvae: Vec<(&str, View)> = tensors(folder, Part::Dvae)
        .into_iter()
        // Coqui's code rejects tensors that it does not know.
        .filter(|(name, _)| ![TOKEN_HEAD_WEIGHT, TOKEN_HEAD_BIAS].contains(name))
        .map(|(name, view)| (name.strip_prefix("dvae.").unwrap_or(name), view))
        .collect();
    if dvae.is_empty() {
        report.notes.push(
            "there is no DVAE: dvae.pth is not written (training needs it, speaking does not)".to_owned(),
        );
    } else {
        let mut pickle = PickleWriter::new();
        write_dict(&mut pickle, &dvae);
        write_file(disk, output, "dvae.pth", pickle, &dvae, &mut report)?;
    }
    if let Some(stats) = folder.tensor("mel_stats") {
        let mut pickle = PickleWriter::new();
        pickle.tensor(stats.kind, stats.shape);
        write_file(disk, output, "mel_stats.pth", pickle, &[("mel_stats", stats)], &mut report)?;
    }
    write_voices(folder, disk, output, &mut report)?;
    write_texts(folder, disk, output, &mut report)?;
    durable::sync_folder(disk, output)?;
    Ok(report)
}

fn tensors(folder: &ModelFolder, part: Part) -> Vec<(&str, View<'_>)> {
    let file = folder.part(part);
    file.iter().flat_map(|file| file.names().filter_map(|name| Some((name, file.get(name)?)))).collect()
}

fn write_dict(pickle: &mut PickleWriter, tensors: &[(&str, View)]) {
    pickle.begin_dict();
    for (name, view) in tensors {
        pickle.text(name);
        pickle.tensor(view.kind, view.shape);
    }
    pickle.end_dict();
}

/// Writes a file like `torch.save`: the pickle, then the data of each tensor in order.
fn write_file(
    disk: &dyn Disk,
    folder: &Path,
    file: &str,
    pickle: PickleWriter,
    tensors: &[(&str, View)],
    report: &mut ExportReport,
) -> Result<(), WeightsError> {
    let path = folder.join(file);
    let mut archive = ArchiveWriter::new(Writer::create(disk, &path)?, file.trim_end_matches(".pth"));
    let pickle = pickle.finish();
    archive.add("data.pkl", &pickle)?;
    archive.add(".format_version", b"1")?;
    archive.add(".storage_alignment", b"64")?;
    archive.add("byteorder", b"little")?;
    for (i, (_, view)) in tensors.iter().enumerate() {
        archive.add(&format!("data/{i}"), view.bytes)?;
    }
    archive.add("version", b"3\n")?;
    // torch expects a 40-digit serialisation id.
    let id: String = blake3::hash(&pickle).as_bytes().iter().map(|byte| format!("{byte:03}")).collect();
    archive.add(".data/serialization_id", &id.as_bytes()[..40])?;
    archive.finish()?.finish()?.publish(&path)?;
    report.files.push(file.to_owned());
    Ok(())
}

fn write_voices(
    folder: &ModelFolder,
    disk: &dyn Disk,
    output: &Path,
    report: &mut ExportReport,
) -> Result<(), WeightsError> {
    let voices = &folder.manifest().voices;
    let mut pickle = PickleWriter::new();
    let mut tensors = Vec::new();
    pickle.begin_dict();
    for name in voices {
        let Some((latents, vector)) = folder.voice(name) else {
            let what = format!(
                "the manifest lists the voice {name:?}, but {} does not have its tensors",
                Part::Voices.file()
            );
            return Err(WeightsError::content(folder.path(), what));
        };
        let pair = [("gpt_cond_latent", latents), ("speaker_embedding", vector)];
        pickle.text(name);
        write_dict(&mut pickle, &pair);
        tensors.extend(pair);
    }
    pickle.end_dict();
    if voices.is_empty() {
        return Ok(());
    }
    write_file(disk, output, "speakers_xtts.pth", pickle, &tensors, report)
}

/// Copies the vocabulary, and the configuration with its sizes updated where they have changed.
fn write_texts(
    folder: &ModelFolder,
    disk: &dyn Disk,
    output: &Path,
    report: &mut ExportReport,
) -> Result<(), WeightsError> {
    match folder.text(VOCABULARY)? {
        Some(bytes) => {
            durable::write_with(disk, &output.join(VOCABULARY), &bytes)?;
            report.files.push(VOCABULARY.to_owned());
        }
        None => {
            report.notes.push("there is no vocabulary: put the vocab.json of the model next to it".to_owned())
        }
    }
    let sizes = arguments(folder)?;
    let bytes = match folder.text(CONFIG)? {
        Some(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let mut config = python_json::parse(&text)
                .map_err(|error| WeightsError::content(&folder.path().join(CONFIG), error.to_string()))?;
            if update(&mut config, &sizes) { python_json::write(&config).into_bytes() } else { bytes }
        }
        None => {
            report
                .notes
                .push("there is no configuration: a config.json with Coqui's defaults is written".to_owned());
            // Coqui's default is the prompt embedding of the first XTTS; every model here has a perceiver.
            let mut config = json!({"model": "xtts", "model_args": {"gpt_use_perceiver_resampler": true}});
            update(&mut config, &sizes);
            python_json::write(&config).into_bytes()
        }
    };
    durable::write_with(disk, &output.join(CONFIG), &bytes)?;
    report.files.push(CONFIG.to_owned());
    Ok(())
}

/// Sizes of a model under the names of Coqui's configuration.
fn arguments(folder: &ModelFolder) -> Result<Vec<(&'static str, usize)>, WeightsError> {
    // From the tensors: the manifests of trained and imported models describe sizes in different formats.
    let mut shapes = Shapes::new();
    for part in [Part::Gpt, Part::Decoder, Part::Speaker, Part::Dvae] {
        let Some(file) = folder.part(part) else { continue };
        shapes
            .extend(file.names().filter_map(|name| Some((name.to_owned(), file.get(name)?.shape.to_vec()))));
    }
    let heads = folder.manifest().parts.get("gpt").and_then(|gpt| gpt.get("heads")).and_then(Json::as_u64);
    let Sizes { gpt, decoder, .. } =
        Sizes::from_shapes(&shapes, heads.and_then(|heads| usize::try_from(heads).ok()));
    Ok(vec![
        ("gpt_layers", gpt.layers),
        ("gpt_n_model_channels", gpt.dim),
        ("gpt_n_heads", gpt.heads),
        ("gpt_number_text_tokens", gpt.text_tokens),
        ("gpt_num_audio_tokens", gpt.audio_tokens),
        ("gpt_start_audio_token", gpt.audio_tokens.saturating_sub(2)),
        ("gpt_stop_audio_token", gpt.audio_tokens.saturating_sub(1)),
        ("gpt_max_text_tokens", gpt.text_positions.saturating_sub(2)),
        ("gpt_max_audio_tokens", gpt.audio_positions.saturating_sub(3)),
        ("decoder_input_dim", decoder.input),
        ("d_vector_dim", decoder.speaker),
    ])
}

/// Writes sizes into a configuration; returns whether any of them changed.
fn update(config: &mut Json, sizes: &[(&str, usize)]) -> bool {
    let mut changed = false;
    if let Some(arguments) = config.get_mut("model_args").and_then(Json::as_object_mut) {
        for &(name, size) in sizes {
            changed |= arguments.insert(name.to_owned(), json!(size)) != Some(json!(size));
        }
    }
    changed
}
