//! Folders that the page may access, and path resolution that never leaves them.

use super::not_found;
use crate::response::ApiError;
use serde_json::{Value as Json, json};
use std::path::{Component, Path, PathBuf};

/// The allowed folders: name and canonical path.
pub struct Roots(Vec<(String, PathBuf)>);

impl Roots {
    /// Keeps existing folders; missing ones are reported when the server is started.
    pub fn new(folders: Vec<PathBuf>) -> Roots {
        let real = |folder: PathBuf| {
            let real = folder.canonicalize().ok()?;
            let name =
                real.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
            Some((name, real))
        };
        Roots(folders.into_iter().filter_map(real).collect())
    }

    /// Names of the folders, in order.
    pub fn names(&self) -> Json {
        self.0.iter().map(|(name, _)| json!(name)).collect()
    }

    /// Canonical path of `path` inside the root with index `root`. Paths outside are treated as missing, whether `..` or a link
    /// leads there.
    pub fn find(&self, root: &str, path: &str) -> Result<PathBuf, ApiError> {
        let missing = || not_found("there is no such folder under a --data-root folder");
        let number = root.parse::<usize>().map_err(|_| missing())?;
        let (_, root) = self.0.get(number).ok_or_else(missing)?;
        let path = Path::new(path);
        if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(missing());
        }
        let real = root.join(path).canonicalize().map_err(|_| missing())?;
        if real.starts_with(root) { Ok(real) } else { Err(missing()) }
    }

    /// Whether a canonical path is inside one of the folders.
    pub fn contain(&self, real: &Path) -> bool {
        self.0.iter().any(|(_, root)| real.starts_with(root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_the_roots() {
        let at = tempfile::tempdir().unwrap();
        let (root, outside) = (at.path().join("root"), at.path().join("outside"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("inner")).unwrap();
        let roots = Roots::new(vec![root.clone(), at.path().join("nothing")]);
        let real = root.canonicalize().unwrap();
        assert_eq!(roots.find("0", "").unwrap(), real);
        assert_eq!(roots.find("0", "a/b").unwrap(), real.join("a/b"));
        assert_eq!(
            roots.find("0", "inner/b").unwrap(),
            real.join("a/b"),
            "a link inside the root is allowed"
        );
        for (number, path) in [
            ("0", ".."),
            ("0", "a/../.."),
            ("0", "/etc"),
            ("0", "link"),
            ("0", "none"),
            ("1", ""),
            ("-1", ""),
            ("x", ""),
        ] {
            assert!(roots.find(number, path).is_err(), "{number} {path}");
        }
        assert!(roots.contain(&real.join("a")) && !roots.contain(&outside.canonicalize().unwrap()));
    }
}
