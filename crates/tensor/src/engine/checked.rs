//! Every result looked at as soon as it is made: which operation is the first whose result is not finite.

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

/// What is wrong with the results of an operation that has just run, if anything is.
pub(super) fn look(backend: &Backend, program: &Program, number: usize) -> Result<Option<Fault>, Error> {
    let node: &Node = &program.tape.nodes[number];
    for &value in node.outputs.iter().filter(|&&value| !is_work_space(program, value)) {
        let (nan, infinite) = counted(backend, program, value)?;
        if nan + infinite == 0 {
            continue;
        }
        let mut given = false;
        for &input in &node.inputs {
            given |= counted(backend, program, input)? != (0, 0);
        }
        return Ok(Some(Fault {
            op: node.op.name(),
            scope: node.scope.to_string(),
            number: number + 1,
            operations: program.tape.nodes.len(),
            shape: program.tape.shape(value).to_string(),
            nan,
            infinite,
            given,
        }));
    }
    Ok(None)
}

/// Numbers of a value that are NaN, and that are infinite.
fn counted(backend: &Backend, program: &Program, value: Value) -> Result<(usize, usize), Error> {
    let info = program.tape.info(value);
    let address = program.addresses[value.0 as usize];
    if info.dtype == DType::I32 || address == 0 {
        return Ok((0, 0));
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
    let count = |numbers: &mut dyn Iterator<Item = f32>| {
        numbers.fold((0, 0), |(nan, infinite), x| {
            (nan + usize::from(x.is_nan()), infinite + usize::from(x.is_infinite()))
        })
    };
    Ok(match info.dtype {
        DType::F32 => count(&mut bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))),
        _ => count(&mut bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32())),
    })
}
