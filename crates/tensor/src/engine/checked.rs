//! Checks every output as soon as it is computed: its magnitude, and which operation is the first with a NaN or
//! Inf.

use super::{Backend, Program};
use crate::error::Error;
use crate::schedule::{read_values, root};
use crate::shape::DType;
use crate::tape::{EngineBuffer, Node, Storage, Value};
use cudarc::driver::result;
use half::bf16;
use std::fmt;

/// The first operation of a run whose output contains NaN or Inf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// Name of the operation.
    pub op: &'static str,
    /// Scope in the model; scopes of the backward pass end in `'`.
    pub scope: String,
    /// Position among the operations of the program, counted from 1.
    pub number: usize,
    /// Number of operations in the program.
    pub operations: usize,
    /// Shape of the output.
    pub shape: String,
    /// Number of NaN elements.
    pub nan: usize,
    /// Number of infinite elements.
    pub infinite: usize,
    /// Whether an input was not finite either: the cause is then an input of the program or the weights.
    pub inputs_nonfinite: bool,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NonFinite { op, scope, number, operations, shape, nan, infinite, inputs_nonfinite } = self;
        write!(
            f,
            "operation {number} of {operations}, `{op}` in `{scope}`, is the first with a NaN or Inf output: "
        )?;
        write!(f, "{nan} NaN and {infinite} infinite in {shape}")?;
        let cause = if *inputs_nonfinite {
            "; its inputs are not finite either"
        } else {
            "; all its inputs are finite"
        };
        f.write_str(cause)
    }
}

/// Whether an operation may write only parts of a value: workspace that is never read, and the report, whose other
/// elements are left from the previous run.
fn is_workspace(program: &Program, value: Value) -> bool {
    let tape = &program.tape;
    let owner = root(tape, value);
    if tape.info(owner).storage == Storage::EngineBuffer(EngineBuffer::Report) {
        return true;
    }
    let committed = || tape.commits.iter().any(|(_, from)| root(tape, *from) == owner);
    tape.info(owner).storage == Storage::Scratch
        && !program.read.get_or_init(|| read_values(tape)).contains(&owner)
        && !committed()
}

/// Largest magnitudes of one operation's outputs in a checked run.
#[derive(Clone, Debug, PartialEq)]
pub struct Magnitude {
    /// Name of the operation.
    pub op: &'static str,
    /// Scope in the model; scopes of the backward pass end in `'`.
    pub scope: String,
    /// Largest finite absolute value of each output.
    pub largest: Vec<f32>,
}

/// Findings of a checked run.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub first_nonfinite: Option<NonFinite>,
    pub magnitudes: Vec<Magnitude>,
}

impl Findings {
    /// Checks the outputs of an operation that has just run.
    pub fn check_outputs(
        &mut self,
        backend: &Backend,
        program: &Program,
        number: usize,
    ) -> Result<(), Error> {
        let node: &Node = &program.tape.nodes[number];
        let mut largest = Vec::with_capacity(node.outputs.len());
        for &value in node.outputs.iter().filter(|&&value| !is_workspace(program, value)) {
            let stats = count(backend, program, value)?;
            largest.push(stats.largest);
            if stats.is_finite() || self.first_nonfinite.is_some() {
                continue;
            }
            let mut inputs_nonfinite = false;
            for &input in &node.inputs {
                inputs_nonfinite |= !count(backend, program, input)?.is_finite();
            }
            self.first_nonfinite = Some(NonFinite {
                op: node.op.name(),
                scope: node.scope.to_string(),
                number: number + 1,
                operations: program.tape.nodes.len(),
                shape: program.tape.shape(value).to_string(),
                nan: stats.nan,
                infinite: stats.infinite,
                inputs_nonfinite,
            });
        }
        self.magnitudes.push(Magnitude { op: node.op.name(), scope: node.scope.to_string(), largest });
        Ok(())
    }
}

/// Statistics of a value's elements.
#[derive(Clone, Copy, Default)]
struct ValueStats {
    nan: usize,
    infinite: usize,
    largest: f32,
}

impl ValueStats {
    fn is_finite(self) -> bool {
        self.nan + self.infinite == 0
    }

    fn with(mut self, x: f32) -> ValueStats {
        self.nan += usize::from(x.is_nan());
        self.infinite += usize::from(x.is_infinite());
        if x.is_finite() {
            self.largest = self.largest.max(x.abs());
        }
        self
    }
}

fn count(backend: &Backend, program: &Program, value: Value) -> Result<ValueStats, Error> {
    let info = program.tape.info(value);
    let address = program.addresses[value.0 as usize];
    if info.dtype == DType::I32 || address == 0 {
        return Ok(ValueStats::default());
    }
    let mut bytes = vec![0u8; info.shape.len() * info.dtype.size()];
    match backend {
        // SAFETY: the address holds as many bytes as the shape says, and nothing else runs on this engine.
        Backend::Cpu => unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping(address as *const u8, bytes.len());
        },
        Backend::Cuda(cuda) => {
            cuda.bind()?;
            // SAFETY: as above; the copy is finished before the bytes are used.
            unsafe { result::memcpy_dtoh_async(&mut bytes, address, cuda.stream()) }
                .map_err(|e| Error::driver("read back an output", e))?;
            cuda.synchronize()?;
        }
    }
    Ok(match info.dtype {
        DType::F32 => {
            let numbers = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
            numbers.fold(ValueStats::default(), ValueStats::with)
        }
        _ => {
            let numbers = bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32());
            numbers.fold(ValueStats::default(), ValueStats::with)
        }
    })
}
