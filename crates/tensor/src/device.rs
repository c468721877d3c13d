//! Devices.

/// Where an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor.
    Cpu,
    /// A CUDA device, numbered as the driver shows them.
    Cuda(usize),
}
