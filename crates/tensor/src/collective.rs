//! Replicas that meet.

/// What can go wrong between replicas.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CollectiveError(pub String);

/// Replicas that add their gradients up.
pub trait Collective: Send + Sync {
    /// Which replica this is.
    fn rank(&self) -> usize;
    /// How many there are.
    fn world(&self) -> usize;
    /// Every replica ends with the sum, added in the order of ranks.
    fn all_reduce_sum(&self, data: &mut [f32]) -> Result<(), CollectiveError>;
}
