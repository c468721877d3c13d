//! Worker threads that make batches ahead of time, in an order that never depends on timing.
