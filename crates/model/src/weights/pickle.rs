//! A pickle machine that runs nothing: it only builds values.
//!
//! Protocols 2 to 5. Tensors, their storages and `OrderedDict` have a meaning; every other class or function is a name,
//! and what would be a call is an inert [`Node::Object`] with its arguments beside it.
//!
//! Values lie in one arena and name each other by number. So a cycle is no more than two numbers, nesting of any depth
//! costs no stack, neither here nor when it is dropped, and the number of nodes is the memory there is.

use std::ops::Range;

use super::kind::Kind;

/// What a pickle may cost. No file of a real model comes near any of these.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the pickle.
    pub bytes: usize,
    /// Instructions that are run.
    pub steps: usize,
    /// Values that are built.
    pub nodes: usize,
    /// Values on the stack at a time, and numbers in the memo.
    pub stack: usize,
    /// Tensors and storages among them, which take the most.
    pub tensors: usize,
    /// Dimensions of a tensor.
    pub rank: usize,
}

/// What is allowed: at most some 200 MB and well below two seconds, whatever the file says.
pub const LIMITS: Limits =
    Limits { bytes: 32 << 20, steps: 4 << 20, nodes: 1 << 20, stack: 1 << 20, tensors: 1 << 17, rank: 8 };

/// Why a pickle was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PickleError {
    #[error("it ends in the middle of something, at byte {at}")]
    Truncated { at: usize },
    #[error("it does not begin as a pickle of protocol 2 to 5")]
    NotAPickle,
    #[error("the instruction {code:#04x} at byte {at} is none that torch writes")]
    Instruction { code: u8, at: usize },
    #[error("the stack is empty or has no mark where byte {at} needs one")]
    Stack { at: usize },
    #[error("memo entry {index}, asked for at byte {at}, was never stored")]
    Memo { index: u64, at: usize },
    #[error("{what} at byte {at}")]
    Malformed { what: &'static str, at: usize },
    #[error("it has more {what} than {limit}; no model does")]
    TooLarge { what: &'static str, limit: usize },
}

/// The number of a value in its pickle.
pub type Id = u32;

/// A value.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: only the place of its bytes is kept.
    Long(Range<u32>),
    Float(f64),
    Bytes(Range<u32>),
    /// Checked to be UTF-8. Longer texts than any name are [`Node::Bytes`].
    Str(Range<u32>),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Set(Vec<Id>),
    /// The name of a class or function; nothing is looked up.
    Global {
        module: Range<u32>,
        name: Range<u32>,
    },
    Object(Box<Object>),
    Storage(Box<StorageRef>),
    Tensor(Box<TensorRef>),
}

/// What would have been a call.
#[derive(Debug)]
pub struct Object {
    /// What would be called.
    pub class: Id,
    /// With what: usually a tuple.
    pub args: Id,
    /// What it would be told of its state afterwards.
    pub state: Option<Id>,
    /// What would be put into it: pairs as for a dict, the first member `None` where it was appended.
    pub items: Vec<(Option<Id>, Id)>,
}

/// Numbers that lie elsewhere in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRef {
    /// The entry that holds them: `data/KEY`.
    pub key: String,
    /// Of which kind they are.
    pub kind: Kind,
    /// How many there are, as the pickle says.
    pub count: usize,
}

/// A view into a storage. Within its bounds, by what the pickle says of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRef {
    /// Where its numbers lie.
    pub storage: StorageRef,
    /// Number of the first.
    pub offset: usize,
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// Numbers from one index of a dimension to the next.
    pub strides: Vec<usize>,
}

impl TensorRef {
    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Do its numbers lie in row-major order without gaps?
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1usize;
        self.shape.iter().zip(&self.strides).rev().all(|(&length, &stride)| {
            let fits = length == 1 || stride == step;
            step = step.saturating_mul(length);
            fits
        })
    }
}

/// The values of a pickle.
#[derive(Debug)]
pub struct Pickle<'b> {
    bytes: &'b [u8],
    nodes: Vec<Node>,
    root: Id,
}

/// One value of a pickle, to look around from.
#[derive(Clone, Copy, Debug)]
pub struct Value<'p> {
    pickle: &'p Pickle<'p>,
    id: Id,
}

impl<'b> Pickle<'b> {
    /// Builds the values of a pickle.
    pub fn parse(bytes: &'b [u8]) -> Result<Pickle<'b>, PickleError> {
        Pickle::parse_within(bytes, &LIMITS)
    }

    /// [`Self::parse`] with other limits.
    pub fn parse_within(bytes: &'b [u8], limits: &Limits) -> Result<Pickle<'b>, PickleError> {
        let limit = limits.bytes.min(u32::MAX as usize);
        if bytes.len() > limit {
            return Err(PickleError::TooLarge { what: "bytes", limit });
        }
        super::machine::run(bytes, limits).map(|(nodes, root)| Pickle { bytes, nodes, root })
    }

    /// The value that was pickled.
    pub fn root(&self) -> Value<'_> {
        Value { pickle: self, id: self.root }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// There is always at least one.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl<'p> Value<'p> {
    /// What it is.
    pub fn node(self) -> &'p Node {
        &self.pickle.nodes[self.id as usize]
    }

    fn of(self, id: Id) -> Value<'p> {
        Value { pickle: self.pickle, id }
    }

    fn slice(self, range: &Range<u32>) -> &'p [u8] {
        &self.pickle.bytes[range.start as usize..range.end as usize]
    }

    /// A string's text.
    pub fn as_str(self) -> Option<&'p str> {
        match self.node() {
            Node::Str(range) => std::str::from_utf8(self.slice(range)).ok(),
            _ => None,
        }
    }

    fn is_text(self, text: &str) -> bool {
        matches!(self.node(), Node::Str(range) if self.slice(range) == text.as_bytes())
    }

    /// An integer.
    pub fn as_int(self) -> Option<i64> {
        match self.node() {
            Node::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A tensor.
    pub fn as_tensor(self) -> Option<&'p TensorRef> {
        match self.node() {
            Node::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Members of a list, tuple or set.
    pub fn members(self) -> Vec<Value<'p>> {
        match self.node() {
            Node::List(ids) | Node::Tuple(ids) | Node::Set(ids) => {
                ids.iter().map(|&id| self.of(id)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Is it a dict?
    pub fn is_dict(self) -> bool {
        matches!(self.node(), Node::Dict(_))
    }

    /// Pairs of a dict, in its order.
    pub fn entries(self) -> impl Iterator<Item = (Value<'p>, Value<'p>)> {
        let pairs: &[(Id, Id)] = match self.node() {
            Node::Dict(pairs) => pairs,
            _ => &[],
        };
        pairs.iter().map(move |&(key, value)| (self.of(key), self.of(value)))
    }

    /// A dict's value under a string; the last one, as Python would have it.
    pub fn get(self, key: &str) -> Option<Value<'p>> {
        self.entries().filter(|(k, _)| k.is_text(key)).last().map(|(_, value)| value)
    }

    /// A dict's value, or what an object would have as its attribute.
    pub fn attribute(self, name: &str) -> Option<Value<'p>> {
        match self.node() {
            Node::Object(object) => object.state.and_then(|state| self.of(state).get(name)),
            _ => self.get(name),
        }
    }

    /// `module.name` of what an object would be made by.
    pub fn class(self) -> Option<String> {
        let named = match self.node() {
            Node::Object(object) => self.of(object.class),
            _ => self,
        };
        match named.node() {
            Node::Global { module, name } => {
                let text = |range| String::from_utf8_lossy(named.slice(range));
                Some(format!("{}.{}", text(module), text(name)))
            }
            _ => None,
        }
    }

    /// What a value is, in a word for people.
    pub fn describe(self) -> String {
        match self.node() {
            Node::None => "None".to_owned(),
            Node::Bool(_) => "a bool".to_owned(),
            Node::Int(_) | Node::Long(_) => "an integer".to_owned(),
            Node::Float(_) => "a float".to_owned(),
            Node::Bytes(_) => "bytes".to_owned(),
            Node::Str(_) => "a string".to_owned(),
            Node::List(_) => "a list".to_owned(),
            Node::Tuple(_) => "a tuple".to_owned(),
            Node::Dict(_) => "a dict".to_owned(),
            Node::Set(_) => "a set".to_owned(),
            Node::Global { .. } => format!("the name {}", self.class().unwrap_or_default()),
            Node::Object(_) => {
                format!("an object of {}", self.class().unwrap_or_else(|| "no class".to_owned()))
            }
            Node::Storage(_) => "a storage".to_owned(),
            Node::Tensor(_) => "a tensor".to_owned(),
        }
    }
}
