//! Resampling of a sequence: nearest or linear interpolation over time.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::ops::time;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Input: `[b, time, c]`. Output: `[b, longer, c]`.
#[derive(Clone, Copy, Debug)]
struct Nearest {
    time: usize,
    longer: usize,
    c: usize,
}

impl Op for Nearest {
    fn name(&self) -> &'static str {
        "interpolate_nearest"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, Nearest { time, longer, c }) = (io.f32(0), *self);
        time::gather(io.accumulate(0), x, [longer, time, c], |t, take| take(t / (longer / time), 1.0));
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, Nearest { time, longer, c }) = (io.output_shape(0).len(), *self);
        let name = format!("interpolate_nearest_forward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), n as i64, longer, time, c];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(NearestBackward(*self), &[dy], &[target]);
    }
}

/// Input: dy. Output: dx.
#[derive(Clone, Copy, Debug)]
struct NearestBackward(Nearest);

impl Op for NearestBackward {
    fn name(&self) -> &'static str {
        "interpolate_nearest'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, Nearest { time, longer, c }) = (io.f32(0), self.0);
        let factor = longer / time;
        time::gather(io.accumulate(0), dy, [time, longer, c], |t, take| {
            (t * factor..(t + 1) * factor).for_each(|t| take(t, 1.0));
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, Nearest { time, longer, c }) = (io.output_shape(0).len(), self.0);
        let name = format!("interpolate_nearest_backward_{}", float(io.output_dtype(0)).suffix());
        let args = args![io.output(0), io.base(0), io.input(0), n as i64, time, longer, c];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

/// Input: `[b, time, c]`. Output: `[b, longer, c]`.
#[derive(Clone, Copy, Debug)]
struct Linear {
    time: usize,
    longer: usize,
    c: usize,
    scale: f64,
}

impl Linear {
    /// Source time steps per output time step; in f32, as PyTorch computes it.
    fn step(&self) -> f32 {
        (1.0 / self.scale) as f32
    }

    /// The two source time steps around output time `t`, and the weight of the second.
    fn source_position(&self, t: usize) -> (usize, usize, f32) {
        let at = (self.step() * (t as f32 + 0.5) - 0.5).max(0.0);
        let a = (at as usize).min(self.time - 1);
        (a, (a + 1).min(self.time - 1), at - a as f32)
    }
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        "interpolate_linear"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let x = io.f32(0);
        time::gather(io.accumulate(0), x, [self.longer, self.time, self.c], |t, take| {
            let (a, b, weight) = self.source_position(t);
            take(a, 1.0 - weight);
            take(b, weight);
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("interpolate_linear_forward_{}", float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), n as i64, self.longer, self.time, self.c, self.step()];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(LinearBackward(*self), &[dy], &[target]);
    }
}

/// Input: dy. Output: dx.
#[derive(Clone, Copy, Debug)]
struct LinearBackward(Linear);

impl Op for LinearBackward {
    fn name(&self) -> &'static str {
        "interpolate_linear'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, linear) = (io.f32(0), self.0);
        // Output time steps that use each source time step, with their weights, in order.
        let mut users: Vec<Vec<(usize, f32)>> = vec![Vec::new(); linear.time];
        for t in 0..linear.longer {
            let (a, b, weight) = linear.source_position(t);
            users[a].push((t, 1.0 - weight));
            users[b].push((t, weight));
        }
        time::gather(io.accumulate(0), dy, [linear.time, linear.longer, linear.c], |t, take| {
            users[t].iter().for_each(|&(t, weight)| take(t, weight));
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, Linear { time, longer, c, scale }) = (io.output_shape(0).len(), self.0);
        let name = format!("interpolate_linear_backward_{}", float(io.output_dtype(0)).suffix());
        let (step, scale) = (self.0.step(), scale as f32);
        let args = args![io.output(0), io.base(0), io.input(0), n as i64, time, longer, c, step, scale];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

impl Tape {
    /// Repeats every time step of `x [b, t, c]` `factor` times, to `[b, factor * t, c]`.
    pub fn interpolate_nearest(&mut self, x: Value, factor: usize) -> Value {
        assert!(factor > 0, "the interpolation factor must be at least 1");
        let [batch, time, c] = self.sequence(x);
        let longer = factor * time;
        let spec = Spec::new([batch, longer, c], float(self.info(x).dtype));
        self.push_one(Nearest { time, longer, c }, &[x], spec)
    }

    /// Linear interpolation of `x [b, t, c]` to `scale` times its rate, as `[b, floor(t * scale), c]`: PyTorch's
    /// `linear` with `align_corners=False` and the given scale. Output time i is at source time `(i + 0.5) / scale
    /// - 0.5`, but not before the first.
    pub fn interpolate_linear(&mut self, x: Value, scale: f64) -> Value {
        let [batch, time, c] = self.sequence(x);
        let longer = (time as f64 * scale).floor() as usize;
        assert!(
            scale.is_finite() && longer > 0,
            "{time} time steps at a scale of {scale} give an empty sequence"
        );
        let spec = Spec::new([batch, longer, c], float(self.info(x).dtype));
        self.push_one(Linear { time, longer, c, scale }, &[x], spec)
    }

    fn sequence(&self, x: Value) -> [usize; 3] {
        let shape = self.shape(x);
        assert_eq!(shape.rank(), 3, "x is [batch, time, channel], not {shape}");
        self.check_gradient_type(x);
        [shape.dim(0), shape.dim(1), shape.last()]
    }
}
