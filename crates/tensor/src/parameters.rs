//! What a model's parameters are and where each lies in the flat arenas. No memory is held here: a `Layout` is a pure
//! function of the declarations, so the cost of a model is known before a byte of it is allocated.

use crate::shape::Shape;
use std::collections::HashMap;
use std::ops::Range;

/// Every parameter starts at a multiple of this many elements, so that one chunk of an arena belongs to one parameter
/// and a kernel over the flat buffer looks its group up once per chunk.
pub const CHUNK: usize = 1024;

/// A parameter of a `Layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub(crate) u32);

/// How a parameter is treated by the optimiser.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// For reports.
    pub name: String,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Multiplies the learning rate.
    pub rate: f32,
}

/// A group of a `Layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub(crate) u8);

/// What may happen to a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has a gradient, two moments, and belongs to a group.
    Trained(GroupId),
    /// It is read only: no gradient, no moments.
    Frozen,
    /// State that a step replaces as a whole (running statistics, a codebook), never through a gradient.
    State,
}

/// How a parameter begins, before weights are loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All the same.
    Constant(f32),
    /// Normal with this standard deviation.
    Normal(f32),
    /// Uniform in `-bound .. bound`.
    Uniform(f32),
}

/// One declared parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Unique within the layout.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// What may happen to it.
    pub role: Role,
    /// How it begins.
    pub init: Init,
    /// Where it starts in the arenas, in elements.
    pub offset: usize,
}

impl Parameter {
    /// Its elements in an arena.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.shape.len()
    }
}

/// All parameters of a model: the trained ones first, so that gradients and moments are a prefix of the weights.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    parameters: Vec<Parameter>,
    groups: Vec<Group>,
    names: HashMap<String, ParameterId>,
    trained: usize,
    total: usize,
}

impl Layout {
    /// A layout with no parameter, for programs that have none.
    pub fn empty() -> Layout {
        Layout::default()
    }

    /// The parameters in order of declaration.
    pub fn parameters(&self) -> impl Iterator<Item = (ParameterId, &Parameter)> {
        self.parameters.iter().enumerate().map(|(i, p)| (ParameterId(i as u32), p))
    }

    /// One parameter.
    pub fn get(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0 as usize]
    }

    /// The parameter of that name.
    pub fn find(&self, name: &str) -> Option<ParameterId> {
        self.names.get(name).copied()
    }

    /// The groups in order of declaration.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Elements of the arenas that carry gradients and moments.
    pub fn trained_len(&self) -> usize {
        self.trained
    }

    /// Elements of the weight arenas.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether nothing was declared.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// How many numbers the trained parameters hold, without the padding between them.
    pub fn trained_count(&self) -> usize {
        let trained = self.parameters.iter().filter(|p| matches!(p.role, Role::Trained(_)));
        trained.map(|p| p.shape.len()).sum()
    }

    /// The group of each chunk of the trained arena.
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

/// Declares parameters; `finish` lays them out.
#[derive(Debug, Default)]
pub struct LayoutBuilder {
    parameters: Vec<Parameter>,
    groups: Vec<Group>,
    names: HashMap<String, ParameterId>,
}

impl LayoutBuilder {
    /// Nothing declared yet.
    pub fn new() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// Declares a group for the optimiser.
    pub fn group(&mut self, name: &str, weight_decay: f32, rate: f32) -> GroupId {
        assert!(self.groups.len() < 64, "at most 64 parameter groups");
        self.groups.push(Group { name: name.to_owned(), weight_decay, rate });
        GroupId(self.groups.len() as u8 - 1)
    }

    /// Declares a parameter.
    pub fn add(&mut self, name: &str, shape: impl Into<Shape>, role: Role, init: Init) -> ParameterId {
        let id = ParameterId(self.parameters.len() as u32);
        let shape = shape.into();
        let before = self.names.insert(name.to_owned(), id);
        assert!(before.is_none(), "the parameter {name} is declared twice");
        self.parameters.push(Parameter { name: name.to_owned(), shape, role, init, offset: 0 });
        id
    }

    /// Gives every parameter its place.
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
