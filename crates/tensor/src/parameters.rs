//! Declarations of a model's parameters and their offsets in the flat arenas. A `Layout` holds no memory: it is a
//! pure function of the declarations, so the memory a model needs is known before any of it is allocated.

use crate::shape::Shape;
use std::collections::HashMap;
use std::ops::Range;

/// Every parameter starts at a multiple of this many elements. A chunk of an arena therefore belongs to one
/// parameter, and a kernel over the flat buffer looks up the optimiser group once per chunk.
pub const CHUNK: usize = 1024;

/// Index of a parameter in a `Layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub(crate) u32);

/// Optimiser settings shared by a set of parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Name in reports.
    pub name: String,
    /// Decoupled weight decay, as in AdamW.
    pub weight_decay: f32,
    /// Factor applied to the learning rate.
    pub rate: f32,
}

/// Index of a group in a `Layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub(crate) u8);

/// Whether and how a parameter changes during training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Trained by gradient: has a gradient and two moments, and belongs to an optimiser group.
    Trained(GroupId),
    /// Read only: no gradient, no moments.
    Frozen,
    /// State that a step replaces as a whole (running statistics, a codebook), never by gradient.
    State,
}

/// Initial values of a parameter, before weights are loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All equal to this value.
    Constant(f32),
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Uniform in `-bound .. bound`.
    Uniform(f32),
}

/// One declared parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Unique within the layout.
    pub name: String,
    /// Its shape; a scalar is `[1]`.
    pub shape: Shape,
    /// Whether and how it changes during training.
    pub role: Role,
    /// Initial values.
    pub init: Init,
    /// First element in the arenas.
    pub offset: usize,
}

impl Parameter {
    /// Element range in an arena.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.shape.len()
    }
}

/// All parameters of a model. Trained parameters come first, so that gradients and moments are a prefix of the
/// weights.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    parameters: Vec<Parameter>,
    groups: Vec<Group>,
    names: HashMap<String, ParameterId>,
    trained: usize,
    total: usize,
}

impl Layout {
    /// A layout without parameters, for programs that need none.
    pub fn empty() -> Layout {
        Layout::default()
    }

    /// The parameters in order of declaration.
    pub fn parameters(&self) -> impl Iterator<Item = (ParameterId, &Parameter)> {
        self.parameters.iter().enumerate().map(|(i, p)| (ParameterId(i as u32), p))
    }

    /// Returns a parameter by its id.
    pub fn get(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0 as usize]
    }

    /// Looks up a parameter by name.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.names.get(name).copied()
    }

    /// The groups in order of declaration.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Number of elements in the arenas of gradients and moments, padding included.
    pub fn trained_len(&self) -> usize {
        self.trained
    }

    /// Number of elements in the weight arenas, padding included.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether no parameter was declared.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Number of trained elements, without the padding between parameters.
    pub fn trained_count(&self) -> usize {
        let trained = self.parameters.iter().filter(|p| matches!(p.role, Role::Trained(_)));
        trained.map(|p| p.shape.len()).sum()
    }

    /// The optimiser group of each chunk of the trained arena.
    pub fn chunk_groups(&self) -> Vec<u8> {
        let mut groups = vec![0; self.trained / CHUNK];
        for parameter in &self.parameters {
            if let Role::Trained(GroupId(group)) = parameter.role {
                let chunks = parameter.offset / CHUNK..parameter.range().end.div_ceil(CHUNK);
                groups[chunks].fill(group);
            }
        }
        groups
    }
}

/// Declares parameters; `finish` assigns their offsets.
#[derive(Debug, Default)]
pub struct LayoutBuilder {
    parameters: Vec<Parameter>,
    groups: Vec<Group>,
    names: HashMap<String, ParameterId>,
}

impl LayoutBuilder {
    /// A builder without declarations.
    pub fn new() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// Declares an optimiser group; `rate` multiplies the learning rate.
    pub fn group(&mut self, name: &str, weight_decay: f32, rate: f32) -> GroupId {
        assert!(self.groups.len() < 64, "at most 64 parameter groups");
        self.groups.push(Group { name: name.to_owned(), weight_decay, rate });
        GroupId(self.groups.len() as u8 - 1)
    }

    /// Declares a parameter. Panics if the name is already in use.
    pub fn add(&mut self, name: &str, shape: impl Into<Shape>, role: Role, init: Init) -> ParameterId {
        let id = ParameterId(self.parameters.len() as u32);
        let shape = shape.into();
        let before = self.names.insert(name.to_owned(), id);
        assert!(before.is_none(), "the parameter {name} is declared twice");
        self.parameters.push(Parameter { name: name.to_owned(), shape, role, init, offset: 0 });
        id
    }

    /// Assigns an offset to every parameter.
    pub fn finish(mut self) -> Layout {
        let mut end = 0;
        let mut place = |parameter: &mut Parameter| {
            parameter.offset = end;
            end += parameter.shape.len().next_multiple_of(CHUNK);
            end
        };
        let mut trained = 0;
        for parameter in self.parameters.iter_mut().filter(|p| matches!(p.role, Role::Trained(_))) {
            trained = place(parameter);
        }
        let mut total = trained;
        for parameter in self.parameters.iter_mut().filter(|p| !matches!(p.role, Role::Trained(_))) {
            total = place(parameter);
        }
        Layout { parameters: self.parameters, groups: self.groups, names: self.names, trained, total }
    }
}
