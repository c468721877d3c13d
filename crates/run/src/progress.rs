//! How long work reports itself without knowing whether a terminal, a log or nobody listens.

/// Listener of a piece of long work. Called from worker threads.
pub trait Progress: Sync {
    /// Work on `total` items begins.
    fn start(&self, what: &str, total: u64);
    /// `items` more are done.
    fn advance(&self, items: u64);
    /// Something the user should read now, without disturbing the bar.
    fn say(&self, message: &str);
    /// The work begun by `start` ended.
    fn finish(&self);
}

/// Nobody listens.
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _what: &str, _total: u64) {}
    fn advance(&self, _items: u64) {}
    fn say(&self, _message: &str) {}
    fn finish(&self) {}
}
