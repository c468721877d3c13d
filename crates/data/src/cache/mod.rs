//! The prepared set on disk: shards of numpy arrays, a checksummed index, `prepare` and `verify`.
