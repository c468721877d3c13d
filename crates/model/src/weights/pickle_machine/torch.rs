//! Calls that PyTorch's pickles make: tensors, their storages and plain ordered dicts. Nothing is executed; unknown calls
//! stay inert objects.

use super::PickleMachine;
use crate::weights::ElementType;
use crate::weights::pickle::{Id, Node, Object, PickleError, StorageRef, TensorRef};

/// Maximum length of a storage key in bytes; torch uses counters.
const MAX_KEY_BYTES: usize = 32;

/// Calls that are interpreted.
enum KnownCall {
    Tensor,
    Parameter,
    Dict,
    No,
}

impl PickleMachine<'_> {
    /// Interprets a call: builds tensors and plain ordered dicts; every other call becomes an inert object.
    pub(super) fn call(&mut self, class: Id, args: Id, reduce: bool) -> Result<(), PickleError> {
        let known = match &self.nodes[class as usize] {
            Node::Global { module, name } => match (self.slice(module), self.slice(name)) {
                (b"torch._utils", b"_rebuild_tensor_v2") if reduce => KnownCall::Tensor,
                (b"torch._utils", b"_rebuild_parameter") if reduce => KnownCall::Parameter,
                (b"collections", b"OrderedDict") if self.is_empty_tuple(args) => KnownCall::Dict,
                _ => KnownCall::No,
            },
            _ => KnownCall::No,
        };
        match known {
            KnownCall::Tensor => {
                self.count_tensor()?;
                let tensor = self.tensor(args)?;
                self.push(Node::Tensor(Box::new(tensor)))
            }
            KnownCall::Parameter => match self.tuple(args)?.first().copied() {
                Some(data) if matches!(self.nodes[data as usize], Node::Tensor(_)) => self.push_id(data),
                _ => Err(self.malformed("a parameter without a tensor")),
            },
            KnownCall::Dict => self.push(Node::Dict(Vec::new())),
            KnownCall::No => {
                let object = Object { class, args, state: None, items: Vec::new() };
                self.push(Node::Object(Box::new(object)))
            }
        }
    }

    pub(super) fn count_tensor(&mut self) -> Result<(), PickleError> {
        self.tensors += 1;
        if self.tensors > self.limits.tensors {
            return Err(PickleError::TooLarge { what: "tensors", limit: self.limits.tensors });
        }
        Ok(())
    }

    fn is_empty_tuple(&self, id: Id) -> bool {
        matches!(&self.nodes[id as usize], Node::Tuple(members) if members.is_empty())
    }

    fn tuple(&self, id: Id) -> Result<&[Id], PickleError> {
        match &self.nodes[id as usize] {
            Node::Tuple(members) => Ok(members),
            _ => Err(self.malformed("arguments that are not a tuple")),
        }
    }

    fn whole(&self, id: Id) -> Result<usize, PickleError> {
        match self.nodes[id as usize] {
            Node::Int(value) => {
                usize::try_from(value).map_err(|_| self.malformed("a negative length or stride"))
            }
            _ => Err(self.malformed("a length that is not an integer")),
        }
    }

    fn lengths(&self, id: Id) -> Result<Vec<usize>, PickleError> {
        let members = match &self.nodes[id as usize] {
            Node::Tuple(members) | Node::List(members) => members,
            _ => return Err(self.malformed("a shape that is not a tuple")),
        };
        if members.len() > self.limits.rank {
            return Err(PickleError::TooLarge { what: "dimensions in a tensor", limit: self.limits.rank });
        }
        members.iter().map(|&member| self.whole(member)).collect()
    }

    /// `('storage', torch.FloatStorage, '0', 'cpu', 1024)`
    pub(super) fn storage(&mut self) -> Result<StorageRef, PickleError> {
        let id = self.pop()?;
        let &[word, class, key, _, count] = self.tuple(id)? else {
            return Err(self.malformed("a storage description without five fields"));
        };
        let text = |id: Id| match &self.nodes[id as usize] {
            Node::Str(range) => std::str::from_utf8(self.slice(range)).ok(),
            _ => None,
        };
        if text(word) != Some("storage") {
            return Err(self.malformed("a reference to something other than a storage"));
        }
        let kind = match &self.nodes[class as usize] {
            Node::Global { module, name } if matches!(self.slice(module), b"torch" | b"torch.storage") => {
                std::str::from_utf8(self.slice(name)).ok().and_then(ElementType::from_storage)
            }
            _ => None,
        };
        let kind = kind.ok_or(self.malformed("a storage of an unsupported element type"))?;
        let key = text(key)
            .filter(|key| key.len() <= MAX_KEY_BYTES)
            .ok_or(self.malformed("a storage without a valid key"))?;
        Ok(StorageRef { key: key.to_owned(), kind, count: self.whole(count)? })
    }

    /// `_rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)`
    fn tensor(&self, args: Id) -> Result<TensorRef, PickleError> {
        let args = self.tuple(args)?;
        let [storage, offset, shape, strides, ..] = *args else {
            return Err(self.malformed("a tensor with too few arguments"));
        };
        let Node::Storage(storage) = &self.nodes[storage as usize] else {
            return Err(self.malformed("a tensor without a storage"));
        };
        let tensor = TensorRef {
            storage: (**storage).clone(),
            offset: self.whole(offset)?,
            shape: self.lengths(shape)?,
            strides: self.lengths(strides)?,
        };
        if tensor.shape.len() != tensor.strides.len() {
            return Err(self.malformed("a tensor whose strides and dimensions differ in number"));
        }
        let count = tensor.shape.iter().try_fold(1usize, |all, &length| all.checked_mul(length));
        let count = count.ok_or(self.malformed("a tensor larger than the address space"))?;
        let last =
            tensor.shape.iter().zip(&tensor.strides).try_fold(tensor.offset, |last, (&length, &stride)| {
                last.checked_add(length.saturating_sub(1).checked_mul(stride)?)
            });
        if count > 0 && last.is_none_or(|last| last >= tensor.storage.count) {
            return Err(self.malformed("a tensor that exceeds its storage"));
        }
        // A stride of zero repeats elements; no weight is stored that way, and it could make a small file expand without
        // bound.
        if count > tensor.storage.count {
            return Err(self.malformed("a tensor with more elements than its storage"));
        }
        Ok(tensor)
    }
}
