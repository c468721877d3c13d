//! A tape is a list of operations on values, in execution order. Building it touches no device: shapes are checked,
//! gradients are derived (`backward.rs`) and memory is planned before anything is allocated.

mod backward;
mod replicas;

pub use backward::{Backward, Gradients, Recompute, Target};

use crate::op::Op;
use crate::parameters::{Layout, ParameterId, Role};
use crate::shape::{DType, Shape};
use std::collections::HashMap;
use std::sync::Arc;

/// A value on a tape: an operation's output, an input, or a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

/// Element type of activations and of the working copy of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Everything in f32.
    F32,
    /// Activations and working weights in bf16, sums and master weights in f32. CUDA only, compute capability 8.0
    /// or newer.
    Bf16,
}

impl Precision {
    /// The element type of activations.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        }
    }
}

/// Buffers that belong to the engine rather than to one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineBuffer {
    /// All weights, f32.
    Master,
    /// The working copy of all weights; shares memory with `Master` in f32.
    Work,
    /// Gradients of the trained weights, f32.
    Gradients,
    /// Adam's first moment.
    Moment1,
    /// Adam's second moment.
    Moment2,
    /// The moving average of the trained weights.
    Average,
    /// The optimiser group of each chunk, i32.
    Groups,
    /// Scalars from the host for this step (`step::Control`), f32.
    Control,
    /// Scalars from the step to the host (`step::Report`), f32.
    Report,
    /// Counters that persist across steps (`step::counter`), f32.
    Counters,
}

/// Where a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In the scratch buffer, at a planned offset; values that are not alive at the same time share memory.
    Scratch,
    /// In the program's input buffer, for the life of the program.
    Input,
    /// A part of another value.
    View {
        /// The value that owns the memory.
        of: Value,
        /// First element.
        start: usize,
    },
    /// A parameter's f32 master weights.
    Master(ParameterId),
    /// A parameter's working copy.
    Work(ParameterId),
    /// A parameter's gradient.
    Gradient(ParameterId),
    /// A whole buffer of the engine.
    EngineBuffer(EngineBuffer),
}

/// Properties of a value.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    /// Sizes of the dimensions, outermost first.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Where the value is stored.
    pub storage: Storage,
    /// Whether a gradient flows to it.
    pub differentiable: bool,
    /// Element type of its gradient: f32 for weights, even where their working copy is rounded.
    pub gradient_dtype: DType,
}

/// One operation on the tape with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operation.
    pub op: Arc<dyn Op>,
    /// Values it reads.
    pub inputs: Vec<Value>,
    /// Values it writes.
    pub outputs: Vec<Value>,
    /// For each output, a value added to it: an already accumulated part of the same gradient.
    pub bases: Vec<Option<Value>>,
    /// Dotted path of the part of the model, for profiles.
    pub scope: Arc<str>,
}

/// Shape and type of an operation's output.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Sizes of the dimensions, outermost first.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Whether a gradient may flow back through it. It does if one flows to any input.
    pub differentiable: bool,
    /// See [`ValueInfo::gradient_dtype`].
    pub gradient_dtype: DType,
}

impl Spec {
    /// An activation, whose gradient has the same type.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Spec {
        Spec { shape: shape.into(), dtype, differentiable: true, gradient_dtype: dtype }
    }

    /// Statistics, ids or workspace: no gradient.
    pub fn constant(shape: impl Into<Shape>, dtype: DType) -> Spec {
        Spec { differentiable: false, ..Spec::new(shape, dtype) }
    }

    /// A computed weight, whose gradient is f32.
    pub fn weight(shape: impl Into<Shape>, dtype: DType) -> Spec {
        Spec { gradient_dtype: DType::F32, ..Spec::new(shape, dtype) }
    }
}

/// A list of operations in execution order.
#[derive(Debug)]
pub struct Tape {
    pub(crate) layout: Arc<Layout>,
    pub(crate) precision: Precision,
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) kept: Vec<Value>,
    pub(crate) gradients: HashMap<Value, Value>,
    /// New values of state parameters, written at the end of a good step.
    pub(crate) commits: Vec<(ParameterId, Value)>,
    parameters: HashMap<ParameterSlot, Value>,
    regions: Vec<std::ops::Range<usize>>,
    scopes: Vec<String>,
    scope: Arc<str>,
    streams: u32,
    replica: u32,
    replicas: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ParameterSlot {
    Master(ParameterId),
    Work(ParameterId),
    Gradient(ParameterId),
    EngineBuffer(EngineBuffer),
}

impl Tape {
    /// An empty tape over the parameters of `layout`.
    pub fn new(layout: Arc<Layout>, precision: Precision) -> Tape {
        Tape {
            layout,
            precision,
            values: Vec::new(),
            nodes: Vec::new(),
            kept: Vec::new(),
            gradients: HashMap::new(),
            commits: Vec::new(),
            parameters: HashMap::new(),
            regions: Vec::new(),
            scopes: Vec::new(),
            scope: "".into(),
            streams: 0,
            replica: 0,
            replicas: 1,
        }
    }

    /// The parameters this tape was created with.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Element type of activations.
    pub fn dtype(&self) -> DType {
        self.precision.dtype()
    }

    /// Properties of a value.
    pub fn info(&self, value: Value) -> &ValueInfo {
        &self.values[value.0 as usize]
    }

    /// Shape of a value.
    pub fn shape(&self, value: Value) -> Shape {
        self.info(value).shape
    }

    /// All operations added so far.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds an input, which the caller fills before each run.
    pub fn input(&mut self, shape: impl Into<Shape>, dtype: DType) -> Value {
        self.value(ValueInfo {
            shape: shape.into(),
            dtype,
            storage: Storage::Input,
            differentiable: false,
            gradient_dtype: dtype,
        })
    }

    /// Adds an input of the activation type that gradients flow to.
    pub fn variable(&mut self, shape: impl Into<Shape>) -> Value {
        let value = self.input(shape, self.dtype());
        self.values[value.0 as usize].differentiable = true;
        value
    }

    /// Adds an input that acts as a weight: its gradient is f32.
    pub fn weight(&mut self, shape: impl Into<Shape>, dtype: DType) -> Value {
        let value = self.input(shape, dtype);
        let info = &mut self.values[value.0 as usize];
        info.differentiable = true;
        info.gradient_dtype = DType::F32;
        value
    }

    /// A parameter in the activation type, for matrix products.
    pub fn parameter(&mut self, id: ParameterId) -> Value {
        self.stored(ParameterSlot::Work(id))
    }

    /// A parameter in f32, for norms, biases and state.
    pub fn master(&mut self, id: ParameterId) -> Value {
        match self.precision {
            Precision::F32 => self.stored(ParameterSlot::Work(id)),
            Precision::Bf16 => self.stored(ParameterSlot::Master(id)),
        }
    }

    /// A whole buffer of the engine as one value.
    pub(crate) fn engine_buffer(&mut self, kind: EngineBuffer) -> Value {
        self.stored(ParameterSlot::EngineBuffer(kind))
    }

    pub(crate) fn gradient_of_parameter(&mut self, id: ParameterId) -> Value {
        self.stored(ParameterSlot::Gradient(id))
    }

    fn stored(&mut self, key: ParameterSlot) -> Value {
        if let Some(&value) = self.parameters.get(&key) {
            return value;
        }
        let layout = Arc::clone(&self.layout);
        let trained = |id: ParameterId| matches!(layout.get(id).role, Role::Trained(_));
        let (shape, dtype, storage, differentiable) = match key {
            ParameterSlot::Master(id) => (layout.get(id).shape, DType::F32, Storage::Master(id), trained(id)),
            ParameterSlot::Work(id) => (layout.get(id).shape, self.dtype(), Storage::Work(id), trained(id)),
            ParameterSlot::Gradient(id) => (layout.get(id).shape, DType::F32, Storage::Gradient(id), false),
            ParameterSlot::EngineBuffer(kind) => {
                let (len, dtype) = buffer_len(kind, &layout, self.precision);
                (Shape::from([len]), dtype, Storage::EngineBuffer(kind), false)
            }
        };
        let info = ValueInfo { shape, dtype, storage, differentiable, gradient_dtype: DType::F32 };
        let value = self.value(info);
        self.parameters.insert(key, value);
        value
    }

    /// Keeps a value in memory to the end of the program, so that it can be read after a run.
    pub fn keep(&mut self, value: Value) {
        if !self.kept.contains(&value) {
            self.kept.push(value);
        }
    }

    /// The gradient that `backward` derived for a value.
    pub fn gradient(&self, value: Value) -> Option<Value> {
        self.gradients.get(&value).copied()
    }

    /// Sets a state parameter to `value` at the end of the step, if the step is good.
    pub fn commit(&mut self, state: ParameterId, value: Value) {
        let parameter = self.layout.get(state);
        assert!(parameter.role == Role::State, "{} is not a state parameter", parameter.name);
        assert_eq!(
            parameter.shape.len(),
            self.shape(value).len(),
            "the new state must have the size of the old one"
        );
        self.commits.push((state, value));
    }

    /// Returns an id that is unique on this tape, which selects the random stream of an operation.
    pub(crate) fn next_stream(&mut self) -> u32 {
        self.streams += 1;
        self.streams
    }

    /// Declares that the rows of this tape are slice `replica` (from 0) of `of` equal slices of a batch. Random
    /// numbers are then those the same rows would get in the whole batch. Must be called before anything is
    /// sampled.
    pub fn set_replica(&mut self, replica: u32, of: u32) {
        assert!(replica < of, "replica {replica} of {of}");
        assert_eq!(self.streams, 0, "set_replica must be called before the first random operation");
        (self.replica, self.replicas) = (replica, of);
    }

    /// Index of this replica's slice of the batch.
    pub(crate) fn replica(&self) -> u32 {
        self.replica
    }

    /// Whether the batch is split over replicas.
    pub(crate) fn is_shared(&self) -> bool {
        self.replicas > 1
    }

    /// Adds `name` to the scope of all operations that `build` adds.
    pub fn scope<T>(&mut self, name: &str, build: impl FnOnce(&mut Tape) -> T) -> T {
        self.scopes.push(name.to_owned());
        self.scope = self.scopes.join(".").into();
        let out = build(self);
        self.scopes.pop();
        self.scope = self.scopes.join(".").into();
        out
    }

    /// Recomputes what `build` adds in the backward pass instead of keeping it: saves memory, costs time.
    pub fn checkpoint<T>(&mut self, build: impl FnOnce(&mut Tape) -> T) -> T {
        let start = self.nodes.len();
        let out = build(self);
        self.regions.push(start..self.nodes.len());
        out
    }

    /// Adds an operation with new output values.
    pub fn push(&mut self, op: impl Op + 'static, inputs: &[Value], outputs: &[Spec]) -> Vec<Value> {
        self.push_shared(Arc::new(op), inputs, outputs)
    }

    /// Adds an operation with one output.
    pub fn push_one(&mut self, op: impl Op + 'static, inputs: &[Value], output: Spec) -> Value {
        self.push(op, inputs, &[output])[0]
    }

    pub(crate) fn push_shared(&mut self, op: Arc<dyn Op>, inputs: &[Value], outputs: &[Spec]) -> Vec<Value> {
        let flows = inputs.iter().any(|&v| self.info(v).differentiable);
        let results: Vec<Value> = outputs.iter().map(|spec| self.scratch(*spec, flows)).collect();
        self.push_into(op, inputs, &results, &vec![None; results.len()]);
        results
    }

    pub(crate) fn push_into(
        &mut self,
        op: Arc<dyn Op>,
        inputs: &[Value],
        outputs: &[Value],
        bases: &[Option<Value>],
    ) {
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            bases: bases.to_vec(),
            scope: Arc::clone(&self.scope),
        });
    }

    pub(crate) fn scratch(&mut self, spec: Spec, flows: bool) -> Value {
        self.value(ValueInfo {
            shape: spec.shape,
            dtype: spec.dtype,
            storage: Storage::Scratch,
            differentiable: spec.differentiable && flows,
            gradient_dtype: spec.gradient_dtype,
        })
    }

    /// A part of a value under another shape; costs no memory or time and has no gradient of its own.
    pub(crate) fn view(&mut self, of: Value, start: usize, shape: Shape) -> Value {
        let source = self.info(of);
        assert!(
            start + shape.len() <= source.shape.len(),
            "a view of {shape} at {start} does not fit into {}",
            source.shape
        );
        let info = ValueInfo { shape, storage: Storage::View { of, start }, ..source.clone() };
        self.value(info)
    }

    fn value(&mut self, info: ValueInfo) -> Value {
        self.values.push(info);
        Value(self.values.len() as u32 - 1)
    }
}

/// Number of elements and element type of an engine buffer.
pub(crate) fn buffer_len(kind: EngineBuffer, layout: &Layout, precision: Precision) -> (usize, DType) {
    match kind {
        EngineBuffer::Master => (layout.len().max(1), DType::F32),
        EngineBuffer::Work => (layout.len().max(1), precision.dtype()),
        EngineBuffer::Gradients | EngineBuffer::Moment1 | EngineBuffer::Moment2 | EngineBuffer::Average => {
            (layout.trained_len().max(1), DType::F32)
        }
        EngineBuffer::Groups => ((layout.trained_len() / crate::parameters::CHUNK).max(1), DType::I32),
        EngineBuffer::Control | EngineBuffer::Report | EngineBuffer::Counters => {
            (crate::step::SLOTS, DType::F32)
        }
    }
}
