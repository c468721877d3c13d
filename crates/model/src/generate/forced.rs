//! Teacher forcing: the GPT reads the codes of a recording instead of sampling. From its states a well-trained decoder
//! reconstructs the recording.

use super::programs::{TEXT_PADDING, tape};
use super::{GenerateError, Generator, out_of_range};
use crate::gpt::{Condition, GptInputs, GptOptions};
use crate::sequence::{Masks, Rows};
use myxtts_tensor::{Control, DType};

/// Results of teacher forcing.
#[derive(Clone, Debug, PartialEq)]
pub struct Forced {
    /// The states `[codes + 1, width]` that predict each code and STOP, like [`super::Spoken::latents`].
    pub latents: Vec<f32>,
    /// Mean cross-entropy of the codes and STOP, in nats.
    pub loss: f64,
    /// Share of them that were the most likely prediction.
    pub accuracy: f64,
}

impl Generator {
    /// Reads `text` and `codes` in a voice, in one pass.
    pub fn forced(&mut self, voice: &[f32], text: &[i32], codes: &[i32]) -> Result<Forced, GenerateError> {
        self.check(voice, text)?;
        let sizes = self.gpt.sizes.clone();
        if codes.len() > sizes.max_audio {
            return Err(GenerateError::CodesTooLong { found: codes.len(), most: sizes.max_audio });
        }
        // START and STOP are not codes of a recording.
        let vocabulary = sizes.audio_vocabulary - 2;
        if let Some(id) = out_of_range(codes, vocabulary) {
            return Err(GenerateError::Code { id, vocabulary });
        }
        let padded = |ids: &[i32], most: usize| {
            let mut padded = ids.to_vec();
            padded.resize(ids.len().next_multiple_of(TEXT_PADDING).min(most), 0);
            padded
        };
        // Bounded by table sizes, far below 2^31.
        let length = |ids: &[i32]| [ids.len() as i32];
        let rows = Rows {
            text: &padded(text, sizes.max_text),
            text_lengths: &length(text),
            codes: &padded(codes, sizes.max_audio),
            code_lengths: &length(codes),
            prompts: &[],
        };
        let fed = Masks::Corrected.sequences(&sizes, &rows)?;
        let mut tape = tape(&self.engine);
        let dtype = tape.dtype();
        let condition = tape.input([1, sizes.perceiver.latents, sizes.width], dtype);
        let [text_in, mel_in, key_mask] =
            [fed.text, fed.mel, fed.key_mask.len()].map(|time| tape.input([1, time], DType::I32));
        let inputs = GptInputs { condition: Condition::Latents(condition), text_in, mel_in, key_mask };
        let outputs = self.gpt.forward(&mut tape, &inputs, &GptOptions::default());
        tape.keep(outputs.latents);
        tape.keep(outputs.mel_logits);
        let mut program = self.engine.load(tape)?;
        self.engine.write(&program, condition, voice)?;
        for (value, ids) in [(text_in, &fed.text_in), (mel_in, &fed.mel_in), (key_mask, &fed.key_mask)] {
            self.engine.write_i32(&program, value, ids)?;
        }
        self.engine.run(&mut program, &Control::default())?;
        let count = codes.len() + 1;
        let mut latents = self.engine.read(&program, outputs.latents)?;
        latents.truncate(count * sizes.width);
        let logits = self.engine.read(&program, outputs.mel_logits)?;
        if latents.iter().any(|value| !value.is_finite()) {
            return Err(GenerateError::NotNumbers { codes: codes.len() });
        }
        let (mut loss, mut right) = (0.0, 0usize);
        for (row, &code) in
            logits.chunks_exact(sizes.audio_vocabulary).zip(codes.iter().chain([&sizes.stop_audio]))
        {
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|&logit| f64::from(logit - top).exp()).sum();
            let own = row[code as usize];
            loss += sum.ln() - f64::from(own - top);
            right += usize::from(own == top);
        }
        Ok(Forced { latents, loss: loss / count as f64, accuracy: right as f64 / count as f64 })
    }
}
