//! The engine of MyXTTS: tensors, autograd, CPU and CUDA, captured steps, collectives, AdamW.
//!
//! A `Layout` says which parameters there are; a `Tape` says what is computed, and derives gradients; an `Engine` holds
//! the memory on a device and makes a `Program` of a tape; a program is run once per step. It has the operations XTTS
//! needs and no other.

pub mod device;
pub mod error;
pub mod parameters;
pub mod shape;
pub mod tape;

pub mod op;
pub mod ops;
pub mod random;

pub mod memory;
mod schedule;
pub mod step;

pub mod collective;
pub mod cpu;
pub mod cuda;
pub mod kernels;

pub mod engine;

pub mod decode;

pub use device::Device;
pub use engine::{Engine, EngineOptions, Initial, Mode, Program, Training};
pub use error::Error;
pub use parameters::{Group, GroupId, Init, Layout, LayoutBuilder, ParameterId, Role};
pub use shape::{DType, Shape};
pub use step::{Control, Report};
pub use tape::{Backward, Precision, Recompute, Tape, Value};
