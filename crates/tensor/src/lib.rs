//! The engine of MyXTTS: tensors, autograd, CPU and CUDA, captured steps, collectives, AdamW. It implements the
//! operations XTTS needs and no others.
//!
//! - A [`Layout`] declares the parameters.
//! - A [`Tape`] lists the operations of a step and derives their gradients.
//! - An [`Engine`] holds the parameters' memory on one device and loads a tape as a [`Program`].
//! - A program is run once per step; each run returns a [`Report`].
//!
//! # Example
//!
//! One training step of a linear layer on the CPU, run twice:
//!
//! ```
//! use myxtts_tensor::ops::adamw::AdamW;
//! use myxtts_tensor::{Backward, Control, DType, Device, Engine, EngineOptions, Init, LayoutBuilder};
//! use myxtts_tensor::{Precision, Role, Tape, Training};
//! use std::sync::Arc;
//!
//! // The parameters: one weight `[out, in]` in an optimiser group without weight decay.
//! let mut builder = LayoutBuilder::new();
//! let group = builder.group("weights", 0.0, 1.0);
//! let weight = builder.add("weight", [1, 2], Role::Trained(group), Init::Zeros);
//! let layout = Arc::new(builder.finish());
//!
//! // The step: forward pass, loss, backward pass, update. Nothing is computed yet.
//! let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
//! let x = tape.input([3, 2], DType::F32);
//! let target = tape.input([3, 1], DType::F32);
//! let weight = tape.parameter(weight);
//! let y = tape.linear(x, weight, None);
//! let loss = tape.mse_loss(y, target);
//! tape.backward(loss, Backward::default());
//! tape.update(loss, AdamW::default());
//!
//! // The engine allocates the memory and runs the step.
//! let options = EngineOptions { training: Training::Adam, ..EngineOptions::default() };
//! let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, options)?;
//! let mut program = engine.load(tape)?;
//! engine.write(&program, x, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
//! engine.write(&program, target, &[2.0, -1.0, 1.0])?;
//! let control = Control { rate: 0.1, ..Control::default() };
//! let first = engine.run(&mut program, &control)?;
//! let second = engine.run(&mut program, &control)?;
//! assert!(first.good && second.loss < first.loss);
//! # Ok::<(), myxtts_tensor::Error>(())
//! ```

pub mod device;
mod error;
pub mod parameters;
mod shape;
pub mod tape;

pub mod op;
pub mod ops;
pub mod random;

pub mod memory;
mod schedule;
mod step;

pub mod collective;
mod cpu;
pub mod cuda;
pub mod kernels;

pub mod engine;

pub mod decode;

pub use device::Device;
pub use engine::{Engine, EngineOptions, InitialWeights, Mode, Program, Training};
pub use error::Error;
pub use parameters::{Group, GroupId, Init, Layout, LayoutBuilder, ParameterId, Role};
pub use shape::{DType, Shape};
pub use step::{Control, Report};
pub use tape::{Backward, Precision, Recompute, Tape, Value};
