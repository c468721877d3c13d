//! The memory plan of a tape: which values may share memory, and therefore the peak, before anything is allocated.

use crate::schedule::{Schedule, root};
use crate::shape::Shape;
use crate::tape::{Storage, Tape, Value};
use std::fmt;

/// Alignment of every value, in bytes.
pub(crate) const ALIGN: usize = 256;

/// Byte offsets of all values of a tape.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// Byte offset of each scratch value in the shared scratch buffer.
    pub(crate) scratch: Vec<Option<usize>>,
    /// Byte offset of each input in the program's own buffer.
    pub(crate) inputs: Vec<Option<usize>>,
    /// Size of the scratch buffer in bytes.
    pub scratch_bytes: usize,
    /// Size of the inputs in bytes.
    pub input_bytes: usize,
    /// Largest number of bytes in use at the same time: a lower bound for any plan.
    pub alive_bytes: usize,
}

struct Block {
    bytes: usize,
    first: usize,
    last: usize,
    offset: usize,
}

impl MemoryPlan {
    /// Plans a tape whose operations run one after another.
    pub fn new(tape: &Tape) -> MemoryPlan {
        MemoryPlan::scheduled(tape, &Schedule::serial(tape))
    }

    /// Plans a tape that runs on two streams: what the side stream reads stays in place until the main stream has
    /// waited for it.
    pub(crate) fn scheduled(tape: &Tape, schedule: &Schedule) -> MemoryPlan {
        let count = tape.values.len();
        let root = |v: Value| root(tape, v).0 as usize;
        let bytes_of = |v: usize| {
            let info = &tape.values[v];
            (info.shape.len() * info.dtype.size()).next_multiple_of(ALIGN).max(ALIGN)
        };
        let scratch = |v: usize| tape.values[v].storage == Storage::Scratch;
        let mut last = vec![0; count];
        for (n, node) in tape.nodes.iter().enumerate() {
            let read = node.inputs.iter().chain(node.bases.iter().flatten()).chain(&node.outputs);
            let until = schedule.side_index[n].map_or(n, |i| schedule.freed_at[i]);
            for &value in read {
                let last = &mut last[root(value)];
                *last = until.max(*last);
            }
        }
        for &value in tape.kept.iter().chain(tape.commits.iter().map(|(_, v)| v)) {
            last[root(value)] = tape.nodes.len();
        }
        let mut blocks: Vec<Block> = Vec::new();
        let mut block_of: Vec<Option<usize>> = vec![None; count];
        for (n, node) in tape.nodes.iter().enumerate() {
            for (output, base) in node.outputs.iter().zip(&node.bases) {
                let out = root(*output);
                if !scratch(out) || block_of[out].is_some() {
                    continue;
                }
                // A sum may overwrite its base if no later operation reads the base.
                let reused = base.map(root).filter(|&b| {
                    let alone = node.inputs.iter().all(|&i| root(i) != b);
                    scratch(b) && last[b] == n && bytes_of(b) == bytes_of(out) && alone
                });
                match reused.and_then(|b| block_of[b]) {
                    Some(block) => {
                        blocks[block].last = last[out];
                        block_of[out] = Some(block);
                    }
                    None => {
                        block_of[out] = Some(blocks.len());
                        blocks.push(Block { bytes: bytes_of(out), first: n, last: last[out], offset: 0 });
                    }
                }
            }
        }
        let scratch_bytes = place(&mut blocks);
        let alive_bytes = most_alive(&blocks, tape.nodes.len());
        let mut inputs = vec![None; count];
        let mut input_bytes = 0;
        for v in (0..count).filter(|&v| tape.values[v].storage == Storage::Input) {
            inputs[v] = Some(input_bytes);
            input_bytes += bytes_of(v);
        }
        let scratch = block_of.iter().map(|b| b.map(|b| blocks[b].offset)).collect();
        MemoryPlan { scratch, inputs, scratch_bytes, input_bytes, alive_bytes }
    }
}

/// Places the largest blocks first, each at the lowest offset that is free for its whole lifetime.
fn place(blocks: &mut [Block]) -> usize {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&b| (std::cmp::Reverse(blocks[b].bytes), blocks[b].first));
    let mut placed: Vec<usize> = Vec::new();
    let mut peak = 0;
    for b in order {
        let (first, last, bytes) = (blocks[b].first, blocks[b].last, blocks[b].bytes);
        let mut busy: Vec<(usize, usize)> = placed
            .iter()
            .map(|&p| &blocks[p])
            .filter(|p| p.first <= last && first <= p.last)
            .map(|p| (p.offset, p.offset + p.bytes))
            .collect();
        busy.sort_unstable();
        let mut offset = 0;
        for (start, end) in busy {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end);
        }
        blocks[b].offset = offset;
        peak = peak.max(offset + bytes);
        placed.push(b);
    }
    peak
}

fn most_alive(blocks: &[Block], nodes: usize) -> usize {
    let mut change = vec![0i64; nodes + 2];
    for block in blocks {
        change[block.first] += block.bytes as i64;
        change[block.last + 1] -= block.bytes as i64;
    }
    let alive = change.iter().scan(0, |sum, c| {
        *sum += c;
        Some(*sum)
    });
    alive.max().unwrap_or(0) as usize
}

/// Device memory of a run in bytes, by purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Master weights.
    pub weights: usize,
    /// The bf16 working copy of the weights.
    pub working_copy: usize,
    /// Gradients.
    pub gradients: usize,
    /// Both of Adam's moments.
    pub moments: usize,
    /// The moving average of the weights.
    pub average: usize,
    /// Activations and workspace of the largest program.
    pub scratch: usize,
    /// Inputs of all programs.
    pub inputs: usize,
    /// Workspace of the CUDA libraries.
    pub libraries: usize,
}

impl MemoryNeed {
    /// Sum over all purposes.
    pub fn total(&self) -> usize {
        self.rows().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Each purpose with its bytes, in display order.
    pub fn rows(&self) -> [(&'static str, usize); 8] {
        [
            ("weights (f32)", self.weights),
            ("weights (bf16)", self.working_copy),
            ("gradients", self.gradients),
            ("Adam moments", self.moments),
            ("moving average", self.average),
            ("activations", self.scratch),
            ("inputs", self.inputs),
            ("libraries", self.libraries),
        ]
    }
}

impl fmt::Display for MemoryNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (purpose, bytes) in self.rows().into_iter().filter(|(_, bytes)| *bytes > 0) {
            writeln!(f, "  {purpose:<16} {:>10.1} MiB", bytes as f64 / (1 << 20) as f64)?;
        }
        write!(f, "  {:<16} {:>10.1} MiB", "total", self.total() as f64 / (1 << 20) as f64)
    }
}

/// Shape and element count of a value, for messages.
pub(crate) fn describe(shape: Shape) -> String {
    format!("{shape}, {} elements", shape.len())
}
