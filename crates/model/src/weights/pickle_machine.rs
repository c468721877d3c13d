//! Interpreter of pickle instructions. See [`pickle`](super::pickle) for the values it builds.

mod torch;

use std::ops::Range;

use super::pickle::{Id, Limits, Node, Object, PickleError};

/// Runs a pickle and returns its values and the id of the root.
pub fn run(bytes: &[u8], limits: &Limits) -> Result<(Vec<Node>, Id), PickleError> {
    let mut machine = PickleMachine {
        bytes,
        at: 0,
        limits,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        tensors: 0,
    };
    match (machine.byte(), machine.byte()) {
        (Ok(0x80), Ok(2..=5)) => {}
        _ => return Err(PickleError::NotAPickle),
    }
    for _ in 0..limits.steps {
        if let Some(root) = machine.step()? {
            return Ok((machine.nodes, root));
        }
    }
    Err(PickleError::TooLarge { what: "instructions", limit: limits.steps })
}

struct PickleMachine<'b> {
    bytes: &'b [u8],
    at: usize,
    limits: &'b Limits,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// Stack height at each open mark.
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
    /// Number of tensors and storages built.
    tensors: usize,
}

/// Maximum length of a class or function name in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// Maximum length of a text in bytes that is stored as such.
const MAX_TEXT_BYTES: usize = 4096;

impl PickleMachine<'_> {
    /// Runs one instruction. Returns the root if it was the last.
    fn step(&mut self) -> Result<Option<Id>, PickleError> {
        let code = self.byte()?;
        match code {
            b'.' => return self.pop().map(Some),
            b'(' => {
                if self.marks.len() >= self.limits.stack {
                    return Err(PickleError::TooLarge { what: "open marks", limit: self.limits.stack });
                }
                self.marks.push(self.stack.len());
            }
            b'0' => self.pop_or_mark()?,
            b'1' => {
                self.pop_mark()?;
            }
            b'2' => {
                let top = self.top()?;
                self.push_id(top)?;
            }
            0x95 => {
                // A frame is only a hint for buffered reading, but a wrong length indicates corruption.
                let length = self.number::<8>()?;
                if length > (self.bytes.len() - self.at) as u64 {
                    return Err(self.truncated());
                }
            }
            b'N' => self.push(Node::None)?,
            0x88 => self.push(Node::Bool(true))?,
            0x89 => self.push(Node::Bool(false))?,
            b'J' => {
                let value = self.number::<4>()? as u32 as i32;
                self.push(Node::Int(value.into()))?;
            }
            b'K' => self.int::<1>()?,
            b'M' => self.int::<2>()?,
            0x8a => self.long::<1>()?,
            0x8b => self.long::<4>()?,
            b'G' => {
                let value = f64::from_be_bytes(self.number::<8>()?.to_le_bytes());
                self.push(Node::Float(value))?;
            }
            b'X' => self.text::<4>()?,
            0x8c => self.text::<1>()?,
            0x8d => self.text::<8>()?,
            b'U' => self.old_text::<1>()?,
            b'T' => self.old_text::<4>()?,
            b'C' => self.raw::<1>()?,
            b'B' => self.raw::<4>()?,
            0x8e | 0x96 => self.raw::<8>()?,
            b']' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b')' => self.push(Node::Tuple(Vec::new()))?,
            0x8f => self.push(Node::Set(Vec::new()))?,
            b't' => {
                let members = self.pop_mark()?;
                self.push(Node::Tuple(members))?;
            }
            0x85..=0x87 => {
                let members = self.pop_many(usize::from(code - 0x84))?;
                self.push(Node::Tuple(members))?;
            }
            0x91 => {
                let members = self.pop_mark()?;
                self.push(Node::Set(members))?;
            }
            b'a' => {
                let member = self.pop()?;
                self.extend([member])?;
            }
            b'e' | 0x90 => {
                let members = self.pop_mark()?;
                self.extend(members)?;
            }
            b's' => {
                let pairs = self.pop_many(2)?;
                self.insert(pairs)?;
            }
            b'u' => {
                let pairs = self.pop_mark()?;
                self.insert(pairs)?;
            }
            b'q' => {
                let index = self.number::<1>()?;
                self.remember(index)?;
            }
            b'r' => {
                let index = self.number::<4>()?;
                self.remember(index)?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,
            b'h' => {
                let index = self.number::<1>()?;
                self.recall(index)?;
            }
            b'j' => {
                let index = self.number::<4>()?;
                self.recall(index)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Node::Global { module, name })?;
            }
            0x93 => {
                let parts = self.pop_many(2)?;
                match (&self.nodes[parts[0] as usize], &self.nodes[parts[1] as usize]) {
                    (Node::Str(module), Node::Str(name))
                        if module.len() <= MAX_NAME_BYTES && name.len() <= MAX_NAME_BYTES =>
                    {
                        let (module, name) = (module.clone(), name.clone());
                        self.push(Node::Global { module, name })?;
                    }
                    _ => return Err(self.malformed("a class name that is not a string")),
                }
            }
            b'R' | 0x81 => {
                let args = self.pop()?;
                let class = self.pop()?;
                self.call(class, args, code == b'R')?;
            }
            0x92 => {
                let kwargs = self.pop()?;
                let args = self.pop()?;
                let class = self.pop()?;
                let object = Object { class, args, state: Some(kwargs), items: Vec::new() };
                self.push(Node::Object(Box::new(object)))?;
            }
            b'b' => {
                let state = self.pop()?;
                let target = self.top()?;
                match &mut self.nodes[target as usize] {
                    Node::Object(object) => object.state = Some(state),
                    // A state dict's `_metadata`: versions of torch's own modules.
                    Node::Dict(_) | Node::Tensor(_) => {}
                    _ => return Err(self.malformed("a state for a value that has none")),
                }
            }
            b'Q' => {
                self.count_tensor()?;
                let storage = self.storage()?;
                self.push(Node::Storage(Box::new(storage)))?;
            }
            _ => return Err(PickleError::Instruction { code, at: self.at - 1 }),
        }
        Ok(None)
    }

    // Reading.

    fn truncated(&self) -> PickleError {
        PickleError::Truncated { at: self.at }
    }

    fn malformed(&self, what: &'static str) -> PickleError {
        PickleError::Malformed { what, at: self.at.saturating_sub(1) }
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        let byte = *self.bytes.get(self.at).ok_or(self.truncated())?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a little-endian number of `N` bytes.
    fn number<const N: usize>(&mut self) -> Result<u64, PickleError> {
        let end = self.at + N;
        let read = self.bytes.get(self.at..end).ok_or(self.truncated())?;
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(read);
        self.at = end;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Byte range of data that is preceded by its length of `N` bytes.
    fn counted<const N: usize>(&mut self) -> Result<Range<u32>, PickleError> {
        let length = self.number::<N>()?;
        if length > (self.bytes.len() - self.at) as u64 {
            return Err(self.truncated());
        }
        let start = self.at;
        self.at += length as usize;
        Ok(start as u32..self.at as u32)
    }

    fn line(&mut self) -> Result<Range<u32>, PickleError> {
        let rest = &self.bytes[self.at..];
        let rest = &rest[..rest.len().min(MAX_NAME_BYTES + 1)];
        let Some(length) = rest.iter().position(|&b| b == b'\n') else {
            return Err(if rest.len() > MAX_NAME_BYTES {
                self.malformed("an unterminated class name")
            } else {
                self.truncated()
            });
        };
        let start = self.at;
        self.at += length + 1;
        Ok(start as u32..(start + length) as u32)
    }

    fn slice(&self, range: &Range<u32>) -> &[u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    fn int<const N: usize>(&mut self) -> Result<(), PickleError> {
        let value = self.number::<N>()? as i64;
        self.push(Node::Int(value))
    }

    fn long<const N: usize>(&mut self) -> Result<(), PickleError> {
        let range = self.counted::<N>()?;
        let bytes = self.slice(&range);
        if bytes.len() > 8 {
            return self.push(Node::Long(range));
        }
        // Two's complement, truncated where the sign allows it.
        let fill = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [fill; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.push(Node::Int(i64::from_le_bytes(whole)))
    }

    fn text<const N: usize>(&mut self) -> Result<(), PickleError> {
        let range = self.counted::<N>()?;
        // Python can pickle lone surrogates, which no relevant name contains. Nor is a relevant name this long: examining a
        // megabyte again for every reference to it would take forever.
        if range.len() > MAX_TEXT_BYTES || std::str::from_utf8(self.slice(&range)).is_err() {
            return self.push(Node::Bytes(range));
        }
        self.push(Node::Str(range))
    }

    /// Python 2 strings, which did not distinguish text from bytes.
    fn old_text<const N: usize>(&mut self) -> Result<(), PickleError> {
        self.text::<N>()
    }

    fn raw<const N: usize>(&mut self) -> Result<(), PickleError> {
        let range = self.counted::<N>()?;
        self.push(Node::Bytes(range))
    }

    // Stack and memo.

    fn push(&mut self, node: Node) -> Result<(), PickleError> {
        if self.nodes.len() >= self.limits.nodes {
            return Err(PickleError::TooLarge { what: "values", limit: self.limits.nodes });
        }
        self.nodes.push(node);
        self.push_id((self.nodes.len() - 1) as Id)
    }

    fn push_id(&mut self, id: Id) -> Result<(), PickleError> {
        if self.stack.len() >= self.limits.stack {
            return Err(PickleError::TooLarge { what: "values on its stack", limit: self.limits.stack });
        }
        self.stack.push(id);
        Ok(())
    }

    /// Lowest stack position that may be popped: values below a mark belong to the mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn empty(&self) -> PickleError {
        PickleError::Stack { at: self.at.saturating_sub(1) }
    }

    fn top(&self) -> Result<Id, PickleError> {
        if self.stack.len() <= self.floor() {
            return Err(self.empty());
        }
        self.stack.last().copied().ok_or(self.empty())
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_or_mark(&mut self) -> Result<(), PickleError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(|_| ())
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Id>, PickleError> {
        if self.stack.len() < self.floor() + count {
            return Err(self.empty());
        }
        Ok(self.stack.split_off(self.stack.len() - count))
    }

    fn pop_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let height = self.marks.pop().ok_or(self.empty())?;
        Ok(self.stack.split_off(height))
    }

    fn remember(&mut self, index: u64) -> Result<(), PickleError> {
        let top = self.top()?;
        let limit = self.limits.stack;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index >= limit {
            return Err(PickleError::TooLarge { what: "memo entries", limit });
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(top);
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Result<(), PickleError> {
        let at = self.at.saturating_sub(1);
        let known = usize::try_from(index).ok().and_then(|index| self.memo.get(index).copied().flatten());
        self.push_id(known.ok_or(PickleError::Memo { index, at })?)
    }

    // Building values.

    fn extend(&mut self, members: impl IntoIterator<Item = Id>) -> Result<(), PickleError> {
        let target = self.top()?;
        match &mut self.nodes[target as usize] {
            Node::List(list) | Node::Set(list) => list.extend(members),
            Node::Object(object) => object.items.extend(members.into_iter().map(|member| (None, member))),
            _ => return Err(self.malformed("members for a value that has none")),
        }
        Ok(())
    }

    fn insert(&mut self, pairs: Vec<Id>) -> Result<(), PickleError> {
        let target = self.top()?;
        let (pairs, odd) = pairs.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(self.malformed("a key without a value"));
        }
        match &mut self.nodes[target as usize] {
            Node::Dict(dict) => dict.extend(pairs.iter().map(|&[key, value]| (key, value))),
            Node::Object(object) => object.items.extend(pairs.iter().map(|&[key, value]| (Some(key), value))),
            _ => return Err(self.malformed("keys for a value that has none")),
        }
        Ok(())
    }
}
