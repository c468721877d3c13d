//! Reads fields from untrusted bytes.

/// A cursor over bytes. A read past the end returns an error that says what was missing.
pub(super) struct ByteReader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        ByteReader { data, at: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.data.len() - self.at
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let left = self.left();
        if count > left {
            return Err(format!("expected {count} bytes at byte {}, {left} remain", self.at));
        }
        self.at += count;
        Ok(&self.data[self.at - count..self.at])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("take returns the requested number of bytes"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn f32(&mut self) -> Result<f32, String> {
        self.array().map(f32::from_le_bytes)
    }

    /// Reads a length-prefixed text.
    pub(super) fn text(&mut self) -> Result<String, String> {
        let length = self.u32()? as usize;
        let at = self.at;
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_owned).map_err(|_| format!("the text at byte {at} is not UTF-8"))
    }

    /// Reads a count of entries of at least `smallest` bytes each. A count that exceeds the remaining bytes is an error, so
    /// the result is safe to allocate for.
    pub(super) fn count(&mut self, smallest: usize) -> Result<usize, String> {
        let count = self.u32()? as usize;
        match count.checked_mul(smallest) {
            Some(bytes) if bytes <= self.left() => Ok(count),
            _ => Err(format!("expected {count} entries, only {} bytes remain", self.left())),
        }
    }
}

/// Writes a length-prefixed text.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
