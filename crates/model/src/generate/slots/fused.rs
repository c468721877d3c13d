//! Slots that advance together, on the tensor crate's batched decoder.

use super::{GenerateError, GptSizes, Prompt, SlotOptions, Speech, framed};
use crate::declare::Released;
use crate::sampling::{Sampler, SamplingOptions};
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::decode::{
    DecodeSizes, Decoder, MAX_ROWS, MAX_STEPS, Row, SlotPrompt, SlotSampling, Weight,
};
use myxtts_tensor::{Engine, Error};
use std::sync::Arc;

/// Current cache rows of a slot: its own, and those of the sequence without text.
#[derive(Clone, Copy)]
struct Rows {
    own: Row,
    textless: Option<Row>,
}

pub(super) struct Fused {
    decoder: Decoder,
    /// By slot; `None` for free slots.
    rows: Vec<Option<Rows>>,
    /// For each row of the queued steps, the slot's index and whether the row is its own or the one without text.
    in_flight: Vec<(usize, bool)>,
}

impl Fused {
    /// Returns whether the device and the kernels support these sizes.
    pub fn fits(cuda: &Cuda, sizes: &GptSizes, options: SlotOptions) -> bool {
        cuda.capability().0 >= 8 && decode_sizes(sizes, options).check().is_ok()
    }

    pub fn new(cuda: Arc<Cuda>, sizes: &GptSizes, options: SlotOptions) -> Result<Fused, Error> {
        let decoder = Decoder::new(cuda, decode_sizes(sizes, options))?;
        Ok(Fused { decoder, rows: vec![None; options.slots], in_flight: Vec::new() })
    }

    /// Returns whether decoding needs a parameter: conditioning and the text head are not needed.
    pub fn takes(parameter: &Released) -> bool {
        parameter.name.rsplit_once('.').is_some_and(|(name, _)| weight_of(name).is_some())
    }

    /// Writes a parameter.
    pub fn write(&mut self, parameter: &Released, data: &[f32]) -> Result<(), Error> {
        let Some((name, part)) = parameter.name.rsplit_once('.') else { return Ok(()) };
        match (weight_of(name), part) {
            (None, _) => Ok(()),
            (Some(which), "bias") => self.decoder.write_bias(which, data),
            (Some(which), _) => self.decoder.write_weight(which, data),
        }
    }

    /// Copies a parameter from an engine on the same device. Returns whether that was possible.
    pub fn copy(&mut self, parameter: &Released, from: &Engine) -> Result<bool, Error> {
        let Some((name, part)) = parameter.name.rsplit_once('.') else { return Ok(true) };
        match (weight_of(name), part) {
            (None, _) => Ok(true),
            (Some(which), "bias") => self.decoder.copy_bias(which, from, parameter.id),
            (Some(which), _) => self.decoder.copy_weight(which, from, parameter.id),
        }
    }

    pub fn recapture(&mut self) -> Result<(), Error> {
        self.decoder.recapture()
    }

    /// Returns whether a slot last started with this voice, which makes the next start faster.
    pub fn has_voice(&self, index: usize, voice: &[f32]) -> bool {
        self.decoder.has_voice(index, voice)
    }

    /// Starts several texts, each in its own slot.
    pub fn join(
        &mut self,
        sizes: &GptSizes,
        joining: &[(usize, Prompt<'_>, &Speech)],
    ) -> Result<(), GenerateError> {
        // The second half of the decoder's slots is for sequences without text.
        let slots = self.rows.len();
        let mut texts: Vec<(usize, &[f32], Vec<i32>)> = Vec::new();
        for &(index, prompt, _) in joining {
            self.rows[index] = None;
            texts.push((index, prompt.voice, framed(sizes, prompt.text)));
            texts.extend(prompt.textless.map(|text| (slots + index, prompt.voice, framed(sizes, text))));
        }
        let prompts: Vec<SlotPrompt<'_>> =
            texts.iter().map(|(slot, voice, text)| SlotPrompt { slot: *slot, voice, text }).collect();
        let rows = self.decoder.prompt(&prompts)?;
        let mut begun = texts.iter().zip(rows).map(|((slot, ..), rows)| {
            let (slot, rows) = (*slot as i32, rows as i32);
            Row { slot, position: rows, fresh: rows, code: sizes.start_audio, ..Row::EMPTY }
        });
        for &(index, prompt, speech) in joining {
            let Some(own) = begun.next() else { break };
            let textless = prompt.textless.and_then(|_| begun.next());
            let textless = textless.map(|row| Row { pair: Row::GUIDE, ..row });
            self.decoder.set_sampling(index, &sampling(&speech.options, sizes, speech.limit))?;
            self.rows[index] = Some(Rows { own, textless });
        }
        Ok(())
    }

    pub fn advance(
        &mut self,
        speeches: &mut [Option<(u64, Speech)>],
        sizes: &GptSizes,
        steps: usize,
    ) -> Result<(), GenerateError> {
        self.collect_pending(speeches, sizes)?;
        let mut left = steps;
        while left > 0 {
            let together = left.min(MAX_STEPS);
            let going: Vec<(usize, Rows)> = speeches
                .iter()
                .enumerate()
                .filter(|(_, speech)| speech.as_ref().is_some_and(|(_, speech)| speech.is_running()))
                .filter_map(|(i, _)| self.rows[i].map(|rows| (i, rows)))
                .collect();
            let mut batch: Vec<Row> = Vec::new();
            let mut of: Vec<(usize, bool)> = Vec::new();
            for (i, rows) in going {
                let more = 1 + usize::from(rows.textless.is_some());
                if batch.len() + more > MAX_ROWS {
                    self.send(&mut batch, &mut of, together)?;
                    self.collect_pending(speeches, sizes)?;
                }
                let mut own = rows.own;
                if rows.textless.is_some() {
                    own.pair = batch.len() as i32 + 1;
                }
                batch.push(own);
                of.push((i, true));
                if let Some(textless) = rows.textless {
                    batch.push(textless);
                    of.push((i, false));
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.send(&mut batch, &mut of, together)?;
            left -= together;
            if left > 0 {
                self.collect_pending(speeches, sizes)?;
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        batch: &mut Vec<Row>,
        of: &mut Vec<(usize, bool)>,
        steps: usize,
    ) -> Result<(), GenerateError> {
        self.decoder.advance(batch, steps)?;
        batch.clear();
        self.in_flight = std::mem::take(of);
        Ok(())
    }

    /// Waits for the queued steps and distributes their codes to the slots.
    pub fn collect_pending(
        &mut self,
        speeches: &mut [Option<(u64, Speech)>],
        sizes: &GptSizes,
    ) -> Result<(), GenerateError> {
        let Some(advanced) = self.decoder.finish()? else { return Ok(()) };
        let (batch, width) = (advanced.rows.len(), sizes.width);
        for (r, &(i, is_own)) in self.in_flight.iter().enumerate() {
            let row = advanced.rows[r];
            let (Some(rows), Some((_, speech))) = (&mut self.rows[i], &mut speeches[i]) else { continue };
            let kept = Row { emitted: 0, ..row };
            if !is_own {
                rows.textless = Some(kept);
                continue;
            }
            rows.own = kept;
            for step in 0..usize::try_from(row.emitted).unwrap_or(0) {
                let at = step * batch + r;
                speech.push(advanced.codes[at], &advanced.latents[at * width..(at + 1) * width]);
            }
            if row.status == Row::ALL_NAN {
                speech.fail();
            }
        }
        self.in_flight.clear();
        Ok(())
    }
}

fn weight_of(name: &str) -> Option<Weight> {
    let outside = match name {
        "gpt.gpt.ln_f" => Weight::LastNorm,
        "gpt.final_norm" => Weight::FinalNorm,
        "gpt.mel_head" => Weight::Head,
        "gpt.mel_embedding" => Weight::AudioTable,
        "gpt.mel_pos_embedding.emb" => Weight::AudioPositions,
        "gpt.text_embedding" => Weight::TextTable,
        "gpt.text_pos_embedding.emb" => Weight::TextPositions,
        _ => return of_block(name),
    };
    Some(outside)
}

/// Parses names such as `gpt.gpt.h.3.attn.c_attn`.
fn of_block(name: &str) -> Option<Weight> {
    let (layer, part) = name.strip_prefix("gpt.gpt.h.")?.split_once('.')?;
    let layer = layer.parse().ok()?;
    Some(match part {
        "ln_1" => Weight::Norm1(layer),
        "attn.c_attn" => Weight::Qkv(layer),
        "attn.c_proj" => Weight::Out(layer),
        "ln_2" => Weight::Norm2(layer),
        "mlp.c_fc" => Weight::Up(layer),
        "mlp.c_proj" => Weight::Down(layer),
        _ => return None,
    })
}

fn decode_sizes(sizes: &GptSizes, options: SlotOptions) -> DecodeSizes {
    DecodeSizes {
        layers: sizes.layers,
        width: sizes.width,
        heads: sizes.heads,
        inner: 4 * sizes.width,
        vocabulary: sizes.audio_vocabulary,
        positions: sizes.audio_positions(),
        text_vocabulary: sizes.text_vocabulary,
        text_positions: sizes.text_positions(),
        latents: sizes.perceiver.latents,
        stop: sizes.stop_audio,
        slots: options.slots * (1 + usize::from(options.guided)),
    }
}

fn sampling(options: &SamplingOptions, sizes: &GptSizes, limit: usize) -> SlotSampling {
    SlotSampling {
        temperature: options.temperature,
        top_p: options.top_p,
        penalty: options.repetition_penalty,
        top_k: options.top_k,
        guidance: options.guidance,
        greedy: options.greedy,
        limit,
        seen_codes: Sampler::initially_seen(sizes.start_audio).to_vec(),
        uniforms: Sampler::uniforms(options.seed).take(limit).collect(),
    }
}
