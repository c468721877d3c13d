//! Synthetic records that the networks of tests are trained on.

use myxtts_data::record::{
    CONDITIONING_MEL, Column, RecordError, RecordSource, SPEAKER_MEL, TOKENS, WAVEFORM,
};

/// The names of two speakers.
fn two() -> &'static [String] {
    static NAMES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| vec!["one".into(), "other".into()])
}

/// Clips of two speakers, of many lengths: slices of a batch have different numbers of targets.
pub struct Voices {
    /// A record that cannot be read.
    pub broken: Option<usize>,
}

pub const COUNT: usize = 40;
pub const VOCABULARY: usize = 20;
pub const CODES: usize = 12;

fn tokens(record: usize) -> usize {
    2 + record * 7 % 13
}

pub fn codes(record: usize) -> Vec<i32> {
    (0..3 + record * 5 % 23).map(|i| ((record * 3 + i * 5) % CODES) as i32).collect()
}

impl RecordSource for Voices {
    fn columns(&self) -> &[Column] {
        &[TOKENS, CONDITIONING_MEL]
    }

    fn len(&self) -> usize {
        COUNT
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        if column == 0 { tokens(record) as u32 } else { 5 + record as u32 % 9 }
    }

    fn speaker(&self, record: usize) -> u32 {
        record as u32 % 2
    }

    fn language(&self, _record: usize) -> u32 {
        0
    }

    fn speakers(&self) -> &[String] {
        two()
    }

    fn languages(&self) -> &[String] {
        &self.speakers()[..1]
    }

    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }

    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if self.broken == Some(record) {
            let error = std::io::Error::other("the disk is gone");
            return Err(RecordError::Io { id: self.id(record), source: error });
        }
        let there = self.rows(record, column) - first;
        if column == 0 {
            let out: &mut [i32] = bytemuck::cast_slice_mut(out);
            let count = out.len().min(there as usize);
            for (i, x) in out[..count].iter_mut().enumerate() {
                *x = 3 + ((record + first as usize + i) % (VOCABULARY - 3)) as i32;
            }
            return Ok(count as u32);
        }
        let out: &mut [f32] = bytemuck::cast_slice_mut(out);
        let rows = (out.len() / 80).min(there as usize);
        for (i, x) in out[..rows * 80].iter_mut().enumerate() {
            *x = -6.0 + ((first as usize * 80 + i) as f32 * 0.37 + record as f32).sin() * 3.0;
        }
        Ok(rows as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        [9; 32]
    }
}

/// Tones of two speakers, with the features of the speaker encoder's front-end.
pub struct Tones;

impl RecordSource for Tones {
    fn columns(&self) -> &[Column] {
        &[WAVEFORM, SPEAKER_MEL]
    }

    fn len(&self) -> usize {
        6
    }

    fn rows(&self, _record: usize, column: usize) -> u32 {
        if column == 0 { 9000 } else { 40 }
    }

    fn speaker(&self, record: usize) -> u32 {
        record as u32 % 2
    }

    fn language(&self, _record: usize) -> u32 {
        0
    }

    fn speakers(&self) -> &[String] {
        two()
    }

    fn languages(&self) -> &[String] {
        &self.speakers()[..1]
    }

    fn id(&self, record: usize) -> String {
        format!("tone-{record}")
    }

    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let wave = |i: usize| ((first as usize + i) as f32 * (0.02 + 0.01 * record as f32)).sin();
        if column == 0 {
            let out: &mut [i16] = bytemuck::cast_slice_mut(out);
            out.iter_mut().enumerate().for_each(|(i, x)| *x = (wave(i) * 9000.0) as i16);
            return Ok(out.len() as u32);
        }
        let out: &mut [f32] = bytemuck::cast_slice_mut(out);
        out.iter_mut().enumerate().for_each(|(i, x)| *x = -4.0 + 2.0 * wave(7 * i));
        Ok((out.len() / 64) as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        [11; 32]
    }
}
