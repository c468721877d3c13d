//! A pickle interpreter that executes nothing: it only builds values.
//!
//! Supports protocols 2 to 5. Tensors, their storages and `OrderedDict` are interpreted; every other class or function is
//! only a name, and a call becomes an inert [`Node::Object`] with its arguments.
//!
//! Values are stored in one arena and refer to each other by index. A cycle is therefore only two indices, nesting of any
//! depth uses no call stack, neither here nor on drop, and the number of nodes bounds the memory.

use std::ops::Range;

use super::ElementType;

/// Resource limits of a pickle. No file of a real model comes near any of these.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size of the pickle in bytes.
    pub bytes: usize,
    /// Number of instructions executed.
    pub steps: usize,
    /// Number of values built.
    pub nodes: usize,
    /// Number of values on the stack at a time, and of memo entries.
    pub stack: usize,
    /// Number of tensors and storages among the values; they are the largest.
    pub tensors: usize,
    /// Number of dimensions of a tensor.
    pub rank: usize,
}

/// Default limits: at most about 200 MB and well below two seconds for any input.
pub const LIMITS: Limits =
    Limits { bytes: 32 << 20, steps: 4 << 20, nodes: 1 << 20, stack: 1 << 20, tensors: 1 << 17, rank: 8 };

/// Error returned when a pickle is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PickleError {
    #[error("the pickle is truncated at byte {at}")]
    Truncated { at: usize },
    #[error("not a pickle of protocol 2 to 5")]
    NotAPickle,
    #[error("the instruction {code:#04x} at byte {at} is not one that torch writes")]
    Instruction { code: u8, at: usize },
    #[error("the stack is empty or has no mark where byte {at} needs one")]
    Stack { at: usize },
    #[error("memo entry {index}, read at byte {at}, was never stored")]
    Memo { index: u64, at: usize },
    #[error("{what} at byte {at}")]
    Malformed { what: &'static str, at: usize },
    #[error("the pickle has more than {limit} {what}, which no model has")]
    TooLarge { what: &'static str, limit: usize },
}

/// Index of a value in its pickle.
pub type Id = u32;

/// A value.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits: only the range of its bytes is stored.
    Long(Range<u32>),
    Float(f64),
    Bytes(Range<u32>),
    /// Valid UTF-8. Texts longer than any name are [`Node::Bytes`].
    Str(Range<u32>),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Set(Vec<Id>),
    /// Name of a class or function; it is never looked up.
    Global {
        module: Range<u32>,
        name: Range<u32>,
    },
    Object(Box<Object>),
    Storage(Box<StorageRef>),
    Tensor(Box<TensorRef>),
}

/// A call that is not executed.
#[derive(Debug)]
pub struct Object {
    /// The callable.
    pub class: Id,
    /// Its arguments, usually a tuple.
    pub args: Id,
    /// State that would be set afterwards; `None` if there is none.
    pub state: Option<Id>,
    /// Items that would be added: pairs as in a dict; the key is `None` for an appended item.
    pub items: Vec<(Option<Id>, Id)>,
}

/// Reference to tensor data elsewhere in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRef {
    /// Name of the entry that contains the data: `data/KEY`.
    pub key: String,
    /// Element type.
    pub kind: ElementType,
    /// Number of elements according to the pickle.
    pub count: usize,
}

/// A view into a storage, within the bounds that the pickle states for the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRef {
    /// Storage with the data.
    pub storage: StorageRef,
    /// Index of the first element in the storage.
    pub offset: usize,
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// Distance in elements between consecutive indices of each dimension.
    pub strides: Vec<usize>,
}

impl TensorRef {
    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the elements are in row-major order without gaps.
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

/// A value of a pickle together with the pickle, for navigation.
#[derive(Clone, Copy, Debug)]
pub struct Value<'p> {
    pickle: &'p Pickle<'p>,
    id: Id,
}

impl<'b> Pickle<'b> {
    /// Builds the values of a pickle.
    pub fn parse(bytes: &'b [u8]) -> Result<Pickle<'b>, PickleError> {
        Pickle::parse_with_limits(bytes, &LIMITS)
    }

    /// [`Self::parse`] with other limits.
    pub(crate) fn parse_with_limits(bytes: &'b [u8], limits: &Limits) -> Result<Pickle<'b>, PickleError> {
        let limit = limits.bytes.min(u32::MAX as usize);
        if bytes.len() > limit {
            return Err(PickleError::TooLarge { what: "bytes", limit });
        }
        super::pickle_machine::run(bytes, limits).map(|(nodes, root)| Pickle { bytes, nodes, root })
    }

    /// The pickled value.
    pub fn root(&self) -> Value<'_> {
        Value { pickle: self, id: self.root }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Always false: there is at least one value.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl<'p> Value<'p> {
    /// The node of this value.
    pub fn node(self) -> &'p Node {
        &self.pickle.nodes[self.id as usize]
    }

    fn of(self, id: Id) -> Value<'p> {
        Value { pickle: self.pickle, id }
    }

    fn slice(self, range: &Range<u32>) -> &'p [u8] {
        &self.pickle.bytes[range.start as usize..range.end as usize]
    }

    /// Text of a string; `None` for other values.
    pub fn as_str(self) -> Option<&'p str> {
        match self.node() {
            Node::Str(range) => std::str::from_utf8(self.slice(range)).ok(),
            _ => None,
        }
    }

    fn is_text(self, text: &str) -> bool {
        matches!(self.node(), Node::Str(range) if self.slice(range) == text.as_bytes())
    }

    /// An integer; `None` for other values.
    pub fn as_int(self) -> Option<i64> {
        match self.node() {
            Node::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A tensor; `None` for other values.
    pub fn as_tensor(self) -> Option<&'p TensorRef> {
        match self.node() {
            Node::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Members of a list, tuple or set; empty for other values.
    pub fn members(self) -> Vec<Value<'p>> {
        match self.node() {
            Node::List(ids) | Node::Tuple(ids) | Node::Set(ids) => {
                ids.iter().map(|&id| self.of(id)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether this is a dict.
    pub(crate) fn is_dict(self) -> bool {
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

    /// Returns a dict's value for a string key; the last one if there are several, as in Python.
    pub fn get(self, key: &str) -> Option<Value<'p>> {
        self.entries().filter(|(k, _)| k.is_text(key)).last().map(|(_, value)| value)
    }

    /// Returns a dict's value, or the attribute that an object would have.
    pub fn attribute(self, name: &str) -> Option<Value<'p>> {
        match self.node() {
            Node::Object(object) => object.state.and_then(|state| self.of(state).get(name)),
            _ => self.get(name),
        }
    }

    /// `module.name` of an object's class.
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

    /// Short description of the value for messages.
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
