//! Reads how large a network is from the shapes of a file's tensors.

/// What is known of a file's tensors. Names are as released.
pub type ShapeOf<'a> = &'a dyn Fn(&str) -> Option<Vec<usize>>;

/// Why no network fits the shapes of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A tensor that every such network has is not there.
    #[error("there is no tensor {name}: the file is of another network, or its names have a prefix")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has another number of dimensions, or none in one of them.
    #[error("{name} has the shape {found:?}; {wanted} dimensions, none of them 0, were expected")]
    Rank {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// Dimensions it should have.
        wanted: usize,
    },
    /// Tensors contradict each other, or the network.
    #[error("{name} has the shape {found:?}, which no such network has: {reason}")]
    Unfit {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// What is wrong with it.
        reason: String,
    },
}

/// The shape of a tensor that must be there.
pub(crate) fn dims<const N: usize>(of: ShapeOf<'_>, name: &str) -> Result<[usize; N], ShapeError> {
    let found = of(name).ok_or_else(|| ShapeError::Missing { name: name.to_owned() })?;
    match <[usize; N]>::try_from(&found[..]) {
        Ok(dims) if !dims.contains(&0) => Ok(dims),
        _ => Err(ShapeError::Rank { name: name.to_owned(), found, wanted: N }),
    }
}

/// How many tensors there are under the names that `name` gives to 0, 1, 2 and so on.
pub(crate) fn count(of: ShapeOf<'_>, name: impl Fn(usize) -> String) -> usize {
    (0..).take_while(|&i| of(&name(i)).is_some()).count()
}

/// A contradiction.
pub(crate) fn unfit(name: &str, found: &[usize], reason: impl Into<String>) -> ShapeError {
    ShapeError::Unfit { name: name.to_owned(), found: found.to_vec(), reason: reason.into() }
}
