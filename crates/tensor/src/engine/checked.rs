//! Every result looked at as soon as it is made: how large it is, and which operation is the first whose result is not finite.

use super::{Backend, Program};
use crate::error::Error;
use crate::schedule::{read_values, root};
use crate::shape::DType;
use crate::tape::{Flat, Node, Storage, Value};
use cudarc::driver::result;
use half::bf16;
use std::fmt;

/// The first operation of a run whose result is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The operation.
    pub op: &'static str,
    /// Where in the model; scopes of a backward pass end in `'`.
    pub scope: String,
    /// Its place among the operations of the program, from 1.
    pub number: usize,
    /// Operations of the program.
    pub operations: usize,
    /// The shape of the result.
    pub shape: String,
    /// Numbers of it that are NaN.
    pub nan: usize,
    /// Numbers of it that are infinite.
    pub infinite: usize,
    /// What it was given was not finite either: it comes from an input or from the weights.
    pub given: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { op, scope, number, operations, shape, nan, infinite, given } = self;
        write!(
            f,
            "operation {number} of {operations}, `{op}` in `{scope}`, is the first whose result is not finite: "
        )?;
        write!(f, "{nan} NaN and {infinite} infinite in {shape}")?;
        let so = if *given { "; its inputs are not finite either" } else { "; all its inputs are finite" };
        f.write_str(so)
    }
}

/// Whether an operation may have written only some of a value: work space, which nobody reads, and the report, whose other
/// numbers are those of the run before.
fn is_work_space(program: &Program, value: Value) -> bool {
    let tape = &program.tape;
    let owner = root(tape, value);
    if tape.info(owner).storage == Storage::Flat(Flat::Report) {
        return true;
    }
    let committed = || tape.commits.iter().any(|(_, from)| root(tape, *from) == owner);
    tape.info(owner).storage == Storage::Scratch
        && !program.read.get_or_init(|| read_values(tape)).contains(&owner)
        && !committed()
}

/// The largest results of one operation of a checked run.
#[derive(Clone, Debug, PartialEq)]
pub struct Magnitude {
    /// The operation.
    pub op: &'static str,
    /// Where in the model; scopes of a backward pass end in `'`.
    pub scope: String,
    /// Of each result, the largest finite number's absolute value.
    pub largest: Vec<f32>,
}

/// What a checked run has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub fault: Option<Fault>,
    pub magnitudes: Vec<Magnitude>,
}

impl Found {
    /// Looks at the results of an operation that has just run.
    pub fn look(&mut self, backend: &Backend, program: &Program, number: usize) -> Result<(), Error> {
        let node: &Node = &program.tape.nodes[number];
        let mut largest = Vec::with_capacity(node.outputs.len());
        for &value in node.outputs.iter().filter(|&&value| !is_work_space(program, value)) {
            let counted = count(backend, program, value)?;
            largest.push(counted.largest);
            if counted.is_finite() || self.fault.is_some() {
                continue;
            }
            let mut given = false;
            for &input in &node.inputs {
                given |= !count(backend, program, input)?.is_finite();
            }
            self.fault = Some(Fault {
                op: node.op.name(),
                scope: node.scope.to_string(),
                number: number + 1,
                operations: program.tape.nodes.len(),
                shape: program.tape.shape(value).to_string(),
                nan: counted.nan,
                infinite: counted.infinite,
                given,
            });
        }
        self.magnitudes.push(Magnitude { op: node.op.name(), scope: node.scope.to_string(), largest });
        Ok(())
    }
}

/// What the numbers of a value are like.
#[derive(Clone, Copy, Default)]
struct Counted {
    nan: usize,
    infinite: usize,
    largest: f32,
}

impl Counted {
    fn is_finite(self) -> bool {
        self.nan + self.infinite == 0
    }

    fn with(mut self, x: f32) -> Counted {
        self.nan += usize::from(x.is_nan());
        self.infinite += usize::from(x.is_infinite());
        if x.is_finite() {
            self.largest = self.largest.max(x.abs());
        }
        self
    }
}

fn count(backend: &Backend, program: &Program, value: Value) -> Result<Counted, Error> {
    let info = program.tape.info(value);
    let address = program.addresses[value.0 as usize];
    if info.dtype == DType::I32 || address == 0 {
        return Ok(Counted::default());
    }
    let mut bytes = vec![0u8; info.shape.len() * info.dtype.size()];
    match backend {
        // SAFETY: the value lies there, as long as its shape says, and nothing else runs on this engine.
        Backend::Cpu => unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping(address as *const u8, bytes.len());
        },
        Backend::Cuda(cuda) => {
            cuda.bind()?;
            // SAFETY: as above; the copy is waited for before the bytes are used.
            unsafe { result::memcpy_dtoh_async(&mut bytes, address, cuda.stream()) }
                .map_err(|e| Error::driver("look at a result", e))?;
            cuda.synchronize()?;
        }
    }
    Ok(match info.dtype {
        DType::F32 => {
            let numbers = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
            numbers.fold(Counted::default(), Counted::with)
        }
        _ => {
            let numbers = bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32());
            numbers.fold(Counted::default(), Counted::with)
        }
    })
}
