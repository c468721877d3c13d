//! A tape is a list of operations on values, in the order they will run. Building it touches no device: shapes are
//! checked, gradients are derived (`backward.rs`), and its memory is planned, before anything is allocated.

mod backward;
mod collect;

pub use backward::{Backward, Gradients, Recompute, Target};

use crate::op::Op;
use crate::parameters::{Layout, ParameterId, Role};
use crate::shape::{DType, Shape};
use std::collections::HashMap;
use std::sync::Arc;

/// A value on a tape: the result of an operation, an input, or a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

/// The type activations and the working copy of the weights have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Everything in f32.
    F32,
    /// Activations and working weights in bf16, sums and master weights in f32; CUDA, compute capability 8.0 and up.
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

/// Buffers that belong to the engine and not to one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flat {
    /// All weights, f32.
    Master,
    /// The working copy of all weights; the same memory as `Master` in f32.
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
    /// What the host says about this step (`step::Control`), f32.
    Control,
    /// What the step says to the host (`step::Report`), f32.
    Report,
    /// What outlives a step beside the weights (`step::Counters`), f32.
    Counters,
}

/// Where a value's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Planned: it shares its place with values that are not alive at the same time.
    Scratch,
    /// Its own for the life of the program.
    Input,
    /// Part of another value.
    View {
        /// The value that owns the memory.
        of: Value,
        /// First element.
        start: usize,
    },
    /// A parameter's f32 master.
    Master(ParameterId),
    /// A parameter's working copy.
    Work(ParameterId),
    /// A parameter's gradient.
    Gradient(ParameterId),
    /// A whole buffer of the engine.
    Flat(Flat),
}

/// What is known of a value.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its shape.
    pub shape: Shape,
    /// Its element type.
    pub dtype: DType,
    /// Where it lives.
    pub storage: Storage,
    /// Whether gradients flow to it.
    pub differentiable: bool,
    /// The element type of its gradient: f32 for weights, whatever they were rounded to.
    pub gradient_dtype: DType,
}

/// One operation on the tape.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is done.
    pub op: Arc<dyn Op>,
    /// What it reads.
    pub inputs: Vec<Value>,
    /// What it writes.
    pub outputs: Vec<Value>,
    /// For each output, a value that is added to it (gradients that come together).
    pub bases: Vec<Option<Value>>,
    /// Where in the model, for profiles.
    pub scope: Arc<str>,
}

/// What an output of an operation will be.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its shape.
    pub shape: Shape,
    /// Its element type.
    pub dtype: DType,
    /// Whether gradients may flow back through it (they do if they flow to an input).
    pub differentiable: bool,
    /// See [`Info::gradient_dtype`].
    pub gradient_dtype: DType,
}

impl Spec {
    /// An activation: its gradient has its own type.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Spec {
        Spec { shape: shape.into(), dtype, differentiable: true, gradient_dtype: dtype }
    }

    /// Statistics, ids, work space: no gradient.
    pub fn constant(shape: impl Into<Shape>, dtype: DType) -> Spec {
        Spec { differentiable: false, ..Spec::new(shape, dtype) }
    }

    /// A computed weight: its gradient is f32.
    pub fn weight(shape: impl Into<Shape>, dtype: DType) -> Spec {
        Spec { gradient_dtype: DType::F32, ..Spec::new(shape, dtype) }
    }
}

/// Operations in the order they will run.
#[derive(Debug)]
pub struct Tape {
    pub(crate) layout: Arc<Layout>,
    pub(crate) precision: Precision,
    pub(crate) values: Vec<Info>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) kept: Vec<Value>,
    pub(crate) gradients: HashMap<Value, Value>,
    /// New contents of state parameters, put in place at the end of a good step.
    pub(crate) commits: Vec<(ParameterId, Value)>,
    parameters: HashMap<Storage2, Value>,
    regions: Vec<std::ops::Range<usize>>,
    scopes: Vec<String>,
    scope: Arc<str>,
    streams: u32,
    replica: u32,
    replicas: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Storage2 {
    Master(ParameterId),
    Work(ParameterId),
    Gradient(ParameterId),
    Flat(Flat),
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

    /// The parameters it was made over.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The type activations have.
    pub fn dtype(&self) -> DType {
        self.precision.dtype()
    }

    /// What is known of a value.
    pub fn info(&self, value: Value) -> &Info {
        &self.values[value.0 as usize]
    }

    /// A value's shape.
    pub fn shape(&self, value: Value) -> Shape {
        self.info(value).shape
    }

    /// The operations so far.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Memory the caller fills before each run.
    pub fn input(&mut self, shape: impl Into<Shape>, dtype: DType) -> Value {
        self.value(Info {
            shape: shape.into(),
            dtype,
            storage: Storage::Input,
            differentiable: false,
            gradient_dtype: dtype,
        })
    }

    /// An input in the type of activations that gradients flow to.
    pub fn variable(&mut self, shape: impl Into<Shape>) -> Value {
        let value = self.input(shape, self.dtype());
        self.values[value.0 as usize].differentiable = true;
        value
    }

    /// A weight that is not a parameter: gradients flow to it in f32.
    pub fn weight(&mut self, shape: impl Into<Shape>, dtype: DType) -> Value {
        let value = self.input(shape, dtype);
        let info = &mut self.values[value.0 as usize];
        info.differentiable = true;
        info.gradient_dtype = DType::F32;
        value
    }

    /// A parameter in the type of activations: for matrix products.
    pub fn parameter(&mut self, id: ParameterId) -> Value {
        self.stored(Storage2::Work(id))
    }

    /// A parameter in f32: for norms, biases, state.
    pub fn master(&mut self, id: ParameterId) -> Value {
        match self.precision {
            Precision::F32 => self.stored(Storage2::Work(id)),
            Precision::Bf16 => self.stored(Storage2::Master(id)),
        }
    }

    /// A buffer of the engine as one value.
    pub fn flat(&mut self, flat: Flat) -> Value {
        self.stored(Storage2::Flat(flat))
    }

    pub(crate) fn gradient_of_parameter(&mut self, id: ParameterId) -> Value {
        self.stored(Storage2::Gradient(id))
    }

    fn stored(&mut self, key: Storage2) -> Value {
        if let Some(&value) = self.parameters.get(&key) {
            return value;
        }
        let layout = Arc::clone(&self.layout);
        let trained = |id: ParameterId| matches!(layout.get(id).role, Role::Trained(_));
        let (shape, dtype, storage, differentiable) = match key {
            Storage2::Master(id) => (layout.get(id).shape, DType::F32, Storage::Master(id), trained(id)),
            Storage2::Work(id) => (layout.get(id).shape, self.dtype(), Storage::Work(id), trained(id)),
            Storage2::Gradient(id) => (layout.get(id).shape, DType::F32, Storage::Gradient(id), false),
            Storage2::Flat(flat) => {
                let (len, dtype) = flat_len(flat, &layout, self.precision);
                (Shape::from([len]), dtype, Storage::Flat(flat), false)
            }
        };
        let info = Info { shape, dtype, storage, differentiable, gradient_dtype: DType::F32 };
        let value = self.value(info);
        self.parameters.insert(key, value);
        value
    }

    /// Keeps a value's memory to the end of the program, so that it can be read after a run.
    pub fn keep(&mut self, value: Value) {
        if !self.kept.contains(&value) {
            self.kept.push(value);
        }
    }

    /// The gradient `backward` found for a value.
    pub fn gradient(&self, value: Value) -> Option<Value> {
        self.gradients.get(&value).copied()
    }

    /// What a state parameter will hold after this step, if the step is good.
    pub fn commit(&mut self, state: ParameterId, value: Value) {
        let parameter = self.layout.get(state);
        assert!(parameter.role == Role::State, "{} is not a state parameter", parameter.name);
        assert_eq!(parameter.shape.len(), self.shape(value).len(), "a new state has the size of the old");
        self.commits.push((state, value));
    }

    /// A number that differs for every caller on this tape: which stream of random numbers an operation draws from.
    pub fn next_stream(&mut self) -> u32 {
        self.streams += 1;
        self.streams
    }

    /// The rows of this tape are the `replica`-th of `of` equal slices of a batch, counted from 0. What is drawn for them
    /// is then what would be drawn for these rows of the whole batch. Called before anything is drawn.
    pub fn set_replica(&mut self, replica: u32, of: u32) {
        assert!(replica < of, "replica {replica} of {of}");
        assert_eq!(self.streams, 0, "what was drawn before is another replica's");
        (self.replica, self.replicas) = (replica, of);
    }

    /// Which slice of a batch the rows are.
    pub(crate) fn replica(&self) -> u32 {
        self.replica
    }

    /// Whether there are other slices.
    pub(crate) fn is_shared(&self) -> bool {
        self.replicas > 1
    }

    /// Names the part of the model that `build` adds.
    pub fn scope<T>(&mut self, name: &str, build: impl FnOnce(&mut Tape) -> T) -> T {
        self.scopes.push(name.to_owned());
        self.scope = self.scopes.join(".").into();
        let out = build(self);
        self.scopes.pop();
        self.scope = self.scopes.join(".").into();
        out
    }

    /// What `build` adds is not kept for the backward pass but computed again there: memory for time.
    pub fn checkpoint<T>(&mut self, build: impl FnOnce(&mut Tape) -> T) -> T {
        let start = self.nodes.len();
        let out = build(self);
        self.regions.push(start..self.nodes.len());
        out
    }

    /// Adds an operation; its results are fresh values.
    pub fn push(&mut self, op: impl Op + 'static, inputs: &[Value], outputs: &[Spec]) -> Vec<Value> {
        self.push_shared(Arc::new(op), inputs, outputs)
    }

    /// Adds an operation with one result.
    pub fn push_one(&mut self, op: impl Op + 'static, inputs: &[Value], output: Spec) -> Value {
        self.push(op, inputs, &[output])[0]
    }

    pub(crate) fn push_shared(&mut self, op: Arc<dyn Op>, inputs: &[Value], outputs: &[Spec]) -> Vec<Value> {
        let flows = inputs.iter().any(|&v| self.info(v).differentiable);
        let made: Vec<Value> = outputs.iter().map(|spec| self.scratch(*spec, flows)).collect();
        self.push_into(op, inputs, &made, &vec![None; made.len()]);
        made
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
        self.value(Info {
            shape: spec.shape,
            dtype: spec.dtype,
            storage: Storage::Scratch,
            differentiable: spec.differentiable && flows,
            gradient_dtype: spec.gradient_dtype,
        })
    }

    /// Part of a value under another shape; no memory, no time, no gradient of its own.
    pub(crate) fn view(&mut self, of: Value, start: usize, shape: Shape) -> Value {
        let source = self.info(of);
        assert!(
            start + shape.len() <= source.shape.len(),
            "a view of {shape} at {start} does not fit {}",
            source.shape
        );
        let info = Info { shape, storage: Storage::View { of, start }, ..source.clone() };
        self.value(info)
    }

    fn value(&mut self, info: Info) -> Value {
        self.values.push(info);
        Value(self.values.len() as u32 - 1)
    }
}

/// Elements and type of a buffer of the engine.
pub(crate) fn flat_len(flat: Flat, layout: &Layout, precision: Precision) -> (usize, DType) {
    match flat {
        Flat::Master => (layout.len().max(1), DType::F32),
        Flat::Work => (layout.len().max(1), precision.dtype()),
        Flat::Gradients | Flat::Moment1 | Flat::Moment2 | Flat::Average => {
            (layout.trained_len().max(1), DType::F32)
        }
        Flat::Groups => ((layout.trained_len() / crate::parameters::CHUNK).max(1), DType::I32),
        Flat::Control | Flat::Report | Flat::Counters => (crate::step::SLOTS, DType::F32),
    }
}
