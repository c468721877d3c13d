//! Batches: length buckets, the shape ladder, collation into memory the caller owns.
