//! Infers the sizes of a network from the tensor shapes in a weight file.

/// Returns the shape of a tensor by its released name; `None` if the file does not have it.
pub type ShapeOf<'a> = &'a dyn Fn(&str) -> Option<Vec<usize>>;

/// Reasons why the shapes in a file fit no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A required tensor is missing.
    #[error("there is no tensor {name}: the file belongs to another network, or its names have a prefix")]
    Missing {
        /// Released tensor name.
        name: String,
    },
    /// A tensor has the wrong number of dimensions, or a dimension of size 0.
    #[error("{name} has shape {found:?}; expected {wanted} dimensions, none of them 0")]
    Rank {
        /// Released tensor name.
        name: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Expected number of dimensions.
        wanted: usize,
    },
    /// Tensors contradict each other or the architecture.
    #[error("{name} has shape {found:?}, which this network cannot have: {reason}")]
    Unfit {
        /// Released tensor name.
        name: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// What is wrong, as the end of a sentence.
        reason: String,
    },
}

/// Returns the shape of a required tensor with `N` dimensions, none of them 0.
pub(crate) fn dims<const N: usize>(of: ShapeOf<'_>, name: &str) -> Result<[usize; N], ShapeError> {
    let found = of(name).ok_or_else(|| ShapeError::Missing { name: name.to_owned() })?;
    match <[usize; N]>::try_from(&found[..]) {
        Ok(dims) if !dims.contains(&0) => Ok(dims),
        _ => Err(ShapeError::Rank { name: name.to_owned(), found, wanted: N }),
    }
}

/// Counts the tensors named `name(0)`, `name(1)`, ... up to the first one that is missing.
pub(crate) fn count(of: ShapeOf<'_>, name: impl Fn(usize) -> String) -> usize {
    (0..).take_while(|&i| of(&name(i)).is_some()).count()
}

/// Builds a [`ShapeError::Unfit`].
pub(crate) fn unfit(name: &str, found: &[usize], reason: impl Into<String>) -> ShapeError {
    ShapeError::Unfit { name: name.to_owned(), found: found.to_vec(), reason: reason.into() }
}
