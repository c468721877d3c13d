//! The end of a step: the global gradient norm, the finiteness check, AdamW with the moving average, and the new
//! state. Each is one pass over flat buffers. A step with NaN or Inf changes nothing.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::{Arg, Launch};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::parameters::{CHUNK, Group};
use crate::shape::DType;
use crate::step::{control, counter, report};
use crate::tape::{EngineBuffer, Spec, Tape, Value};
use rayon::prelude::*;
use std::sync::Arc;

/// AdamW's constants. Weight decay and the learning rate factor come from each parameter's group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Whether to update a moving average of the weights.
    pub average: bool,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, average: false }
    }
}

/// A gradient norm this many times the clipping limit counts as an explosion. Its direction is meaningless, so the
/// gradient is dropped: clipping it would move the few weights that caused it by whole steps, and no others.
pub const EXPLOSION_FACTOR: f32 = 1000.0;

/// Number of partial sums of the norm: fixed, so that the order of addition does not depend on the device.
const PARTS: usize = 1056;

/// Number of groups a kernel takes by value.
const GROUPS: usize = 8;

/// Inputs: gradients, loss, control. Outputs: report, counters, workspace.
#[derive(Debug)]
struct Guard(AdamW);

impl Op for Guard {
    fn name(&self) -> &'static str {
        "guard"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (gradients, loss, controls) = (io.f32(0), io.f32(1)[0], io.f32(2));
        let (out, counters) = (io.take(0), io.take(1));
        let parts: Vec<f64> = gradients
            .par_chunks(64 * CHUNK)
            .map(|piece| {
                vector::wide(
                    #[inline(always)]
                    || vector::sum_squares(piece),
                )
            })
            .collect();
        let norm = parts.iter().sum::<f64>().sqrt() as f32;
        let good = norm.is_finite() && loss.is_finite();
        if good {
            counters[counter::STEPS] += 1.0;
        }
        let steps = counters[counter::STEPS];
        let clip = controls[control::CLIP];
        out[report::LOSS] = loss;
        out[report::NORM] = norm;
        out[report::GOOD] = f32::from(good);
        out[report::STEPS] = steps;
        out[report::SCALE] = match clip > 0.0 && norm > clip {
            false => 1.0,
            true if norm > EXPLOSION_FACTOR * clip => 0.0,
            true => clip / norm,
        };
        out[report::CORRECTIONS] = 1.0 - self.0.beta1.powf(steps);
        out[report::CORRECTIONS + 1] = (1.0 - self.0.beta2.powf(steps)).sqrt();
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(0).len();
        let space = io.output(2);
        io.launch("guard_squares", Launch::line(PARTS, 256), &args![space, io.input(0), n as i64])?;
        let args = args![
            io.output(0),
            io.output(1),
            space,
            PARTS,
            io.input(1),
            io.input(2),
            self.0.beta1,
            self.0.beta2
        ];
        io.launch("guard_finish", Launch::line(1, 32), &args)
    }
}

/// Inputs: gradients, report, control, groups. Outputs: master, work (in bf16), moments, average if there is one.
#[derive(Debug)]
struct Update {
    adam: AdamW,
    groups: Vec<Group>,
    rounded: bool,
}

impl Op for Update {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (gradients, reported, controls) = (io.f32(0), io.f32(1), io.f32(2));
        if reported[report::GOOD] != 1.0 {
            return Ok(());
        }
        let group = io.i32(3);
        let n = gradients.len();
        let (master, m, v) = (&mut io.take(0)[..n], io.take(1), io.take(2));
        let (scale, c1, c2) =
            (reported[report::SCALE], reported[report::CORRECTIONS], reported[report::CORRECTIONS + 1]);
        let (rate, AdamW { beta1, beta2, epsilon, .. }) = (controls[control::RATE], self.adam);
        let all = master.par_chunks_mut(CHUNK).zip(m.par_chunks_mut(CHUNK)).zip(v.par_chunks_mut(CHUNK));
        all.zip(gradients.par_chunks(CHUNK)).zip(group).with_min_len(16).for_each(
            |((((p, m), v), g), &group)| {
                let Group { weight_decay, rate: factor, .. } = self.groups[group as usize];
                let rate = rate * factor;
                let (keep, step) = (1.0 - rate * weight_decay, rate / c1);
                vector::wide(
                    #[inline(always)]
                    || {
                        for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
                            let g = g * scale;
                            *m = beta1 * *m + (1.0 - beta1) * g;
                            *v = beta2 * *v + (1.0 - beta2) * g * g;
                            *p = *p * keep - step * *m / (v.sqrt() / c2 + epsilon);
                        }
                    },
                );
            },
        );
        if self.adam.average {
            let kept = controls[control::AVERAGE];
            let average = io.take(3);
            average.par_chunks_mut(CHUNK).zip(master.par_chunks(CHUNK)).for_each(|(a, p)| {
                a.iter_mut().zip(p).for_each(|(a, p)| *a = kept * *a + (1.0 - kept) * p);
            });
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(0).len();
        let (work, at) = if self.rounded { (io.output(1), 2) } else { (0, 1) };
        let average = if self.adam.average { io.output(at + 2) } else { 0 };
        let mut table = [0f32; 2 * GROUPS];
        for (i, group) in self.groups.iter().enumerate() {
            (table[i], table[GROUPS + i]) = (group.weight_decay, group.rate);
        }
        let words: Vec<u64> =
            table.chunks(2).map(|w| u64::from(w[0].to_bits()) | u64::from(w[1].to_bits()) << 32).collect();
        let args = args![
            io.output(0),
            work,
            io.output(at),
            io.output(at + 1),
            average,
            io.input(0),
            io.input(1),
            io.input(2),
            io.input(3),
            Arg::words(&words),
            self.adam.beta1,
            self.adam.beta2,
            self.adam.epsilon
        ];
        io.launch("adamw", Launch::line(n / CHUNK, 256), &args)
    }
}

/// Inputs: report, the new value. Outputs: the master of a state parameter, and its working copy in bf16.
#[derive(Debug)]
struct Commit;

impl Op for Commit {
    fn name(&self) -> &'static str {
        "commit"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        if io.f32(0)[report::GOOD] == 1.0 {
            let new = io.f32(1);
            io.take(0).copy_from_slice(new);
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.shape(1).len();
        let work = if io.outputs() > 1 { io.output(1) } else { 0 };
        let name = format!("commit_{}", io.dtype(1).suffix());
        io.launch(&name, Launch::each(n), &args![io.output(0), work, io.input(1), io.input(0), n as i64])
    }
}

/// Input: a scalar. Output: the report, of which one element is written.
#[derive(Debug)]
struct Note(usize);

impl Op for Note {
    fn name(&self) -> &'static str {
        "note"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let value = io.f32(0)[0];
        io.take(0)[self.0] = value;
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        super::fill::copy_bytes(io, io.output(0) + 4 * self.0 as u64, io.input(0), 4)
    }
}

/// Input: loss. Output: the report, with the loss and whether it is finite; for steps that end without an update.
#[derive(Debug)]
struct ReportLoss;

impl Op for ReportLoss {
    fn name(&self) -> &'static str {
        "tell"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let loss = io.f32(0)[0];
        let out = io.take(0);
        out[report::LOSS] = loss;
        out[report::NORM] = 0.0;
        out[report::GOOD] = f32::from(loss.is_finite());
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        io.launch("tell", Launch::line(1, 1), &args![io.output(0), io.input(0)])
    }
}

impl Tape {
    /// Ends a step that updates the weights: check, clipping, AdamW, moving average, new state. Call it after
    /// `backward`.
    pub fn update(&mut self, loss: Value, adam: AdamW) {
        let groups = self.layout().groups().to_vec();
        assert!(groups.len() <= GROUPS, "at most {GROUPS} parameter groups");
        let [gradients, reported, controls, counters] =
            [EngineBuffer::Gradients, EngineBuffer::Report, EngineBuffer::Control, EngineBuffer::Counters]
                .map(|f| self.engine_buffer(f));
        let space = self.scratch(Spec::constant([PARTS], DType::F32), false);
        let outputs = [reported, counters, space];
        self.push_into(Arc::new(Guard(adam)), &[gradients, loss, controls], &outputs, &[None; 3]);
        let rounded = self.dtype() == DType::Bf16;
        let mut outputs = vec![self.engine_buffer(EngineBuffer::Master)];
        if rounded {
            outputs.push(self.engine_buffer(EngineBuffer::Work));
        }
        outputs
            .extend([self.engine_buffer(EngineBuffer::Moment1), self.engine_buffer(EngineBuffer::Moment2)]);
        if adam.average {
            outputs.push(self.engine_buffer(EngineBuffer::Average));
        }
        let group = self.engine_buffer(EngineBuffer::Groups);
        let bases = vec![None; outputs.len()];
        let op = Update { adam, groups, rounded };
        self.push_into(Arc::new(op), &[gradients, reported, controls, group], &outputs, &bases);
        self.put_state(reported);
    }

    /// Ends a step that does not change the weights (one of several accumulated steps, or a validation step).
    pub fn report_loss(&mut self, loss: Value) {
        let reported = self.engine_buffer(EngineBuffer::Report);
        self.push_into(Arc::new(ReportLoss), &[loss], &[reported], &[None]);
        self.put_state(reported);
    }

    fn put_state(&mut self, reported: Value) {
        for (id, value) in std::mem::take(&mut self.commits) {
            let mut outputs = vec![self.master(id)];
            if self.dtype() == DType::Bf16 {
                outputs.push(self.parameter(id));
            }
            let bases = vec![None; outputs.len()];
            self.push_into(Arc::new(Commit), &[reported, value], &outputs, &bases);
        }
    }

    /// Writes a scalar to element `slot` of the report's notes.
    pub fn note(&mut self, slot: usize, value: Value) {
        assert!(
            report::NOTES + slot < crate::step::SLOTS,
            "there are only {} notes",
            crate::step::SLOTS - report::NOTES
        );
        assert_eq!(self.info(value).dtype, DType::F32, "a note must be one f32");
        let reported = self.engine_buffer(EngineBuffer::Report);
        self.push_into(Arc::new(Note(report::NOTES + slot)), &[value], &[reported], &[None]);
    }
}
