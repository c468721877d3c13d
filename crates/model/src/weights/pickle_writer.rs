//! Writes pickles that `torch.load(weights_only=True)` reads: dicts, strings and tensors, protocol 2.

use super::ElementType;

/// A pickle being written.
pub struct PickleWriter {
    out: Vec<u8>,
    storages: usize,
}

impl PickleWriter {
    /// Creates an empty pickle.
    pub fn new() -> PickleWriter {
        PickleWriter { out: vec![0x80, 2], storages: 0 }
    }

    /// Writes a string.
    pub fn text(&mut self, text: &str) {
        self.out.push(b'X');
        self.out.extend((text.len() as u32).to_le_bytes());
        self.out.extend(text.as_bytes());
    }

    fn int(&mut self, value: usize) {
        match i32::try_from(value) {
            Ok(value) => {
                self.out.push(b'J');
                self.out.extend(value.to_le_bytes());
            }
            Err(_) => {
                // Eight bytes of two's complement.
                self.out.extend([0x8a, 8]);
                self.out.extend((value as u64).to_le_bytes());
            }
        }
    }

    fn tuple(&mut self, values: &[usize]) {
        self.out.push(b'(');
        values.iter().for_each(|&value| self.int(value));
        self.out.push(b't');
    }

    /// Starts a dict; keys and values follow alternately.
    pub fn begin_dict(&mut self) {
        self.out.extend(b"}(");
    }

    /// Ends the dict.
    pub fn end_dict(&mut self) {
        self.out.push(b'u');
    }

    /// Writes a tensor whose data is the next storage: `data/0`, `data/1`, ...
    pub fn tensor(&mut self, kind: ElementType, shape: &[usize]) {
        let key = self.storages.to_string();
        self.storages += 1;
        self.out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        self.text("storage");
        self.out.extend(format!("ctorch\n{}\n", kind.storage()).as_bytes());
        self.text(&key);
        self.text("cpu");
        self.int(shape.iter().product());
        self.out.extend(b"tQK\0");
        self.tuple(shape);
        let mut strides = vec![1usize; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
        }
        self.tuple(&strides);
        // requires_grad = False, no hooks.
        self.out.push(0x89);
        self.out.extend(b"ccollections\nOrderedDict\n)RtR");
    }

    /// Returns the pickle of the one value that was written.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(b'.');
        self.out
    }
}
