//! Search path of CUDA's libraries: folders set by the user, the dynamic linker's path, toolkits, distributions,
//! and Python's nvidia-* packages (Python itself need not be installed).

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Environment variable with folders to search first, separated by colons.
pub const OVERRIDE: &str = "MYXTTS_CUDA_PATH";

/// One location to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// A folder of [`OVERRIDE`]. Libraries there are used even where another version would fit the driver better.
    Chosen(PathBuf),
    /// Whatever the dynamic linker finds by name.
    Linker,
    Folder(PathBuf),
}

/// All locations in search order. Folders that do not exist are left out, except those the user set.
///
/// `root` is `/`, `program` is the running executable and `variable` reads the environment, except in tests.
pub(super) fn locations(
    root: &Path,
    program: Option<&Path>,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<Location> {
    let mut seen = HashSet::new();
    let mut locations = Vec::new();
    let folders = |name: &str| -> Vec<PathBuf> {
        let list = variable(name).unwrap_or_default();
        std::env::split_paths(&list).filter(|folder| folder.is_absolute()).collect()
    };

    // Relative paths are accepted only here: the user wrote them for this program.
    let chosen = variable(OVERRIDE).unwrap_or_default();
    for folder in std::env::split_paths(&chosen).filter(|folder| !folder.as_os_str().is_empty()) {
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        if !folder.is_dir() {
            // The folder does not exist, but the user set it, so it must appear in the message.
            locations.push(Location::Chosen(folder));
            continue;
        }
        locations.extend(
            library_folders(&folder).into_iter().filter(|f| seen.insert(f.clone())).map(Location::Chosen),
        );
    }
    locations.push(Location::Linker);

    let mut roots = Vec::new();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        roots.extend(folders(name));
    }
    let mut toolkits = entries(&root.join("usr/local"), "cuda");
    toolkits.reverse(); // /usr/local/cuda-13.0 before /usr/local/cuda-12.4
    roots.push(root.join("usr/local/cuda"));
    roots.extend(toolkits);
    roots.push(root.join("opt/cuda"));

    for folder in [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/lib/x86_64-linux-gnu/nvidia/current",
        "usr/lib64",
        "usr/lib",
        "usr/lib/wsl/lib",
        "run/opengl-driver/lib",
    ] {
        roots.push(root.join(folder));
    }

    let conda = folders("CONDA_PREFIX");
    // A wheel puts the program into `PREFIX/bin`: its libraries are next to it although the environment is not activated.
    let mut prefixes: Vec<PathBuf> =
        program.and_then(|file| Some(file.parent()?.parent()?.to_owned())).into_iter().collect();
    prefixes.extend(folders("VIRTUAL_ENV"));
    prefixes.extend(conda.iter().cloned());
    roots.extend(conda);
    prefixes.extend(folders("HOME").into_iter().map(|home| home.join(".local")));
    for folder in folders("PATH") {
        // A virtual environment's python3 is a link: both the folder it is in and the folder it points to are
        // prefixes.
        let python = folder.join("python3");
        prefixes.extend(python.is_file().then(|| folder.parent().map(Path::to_owned)).flatten());
        // pyenv's python3 is a script that selects among its versions: include all of them.
        if folder.ends_with("shims") {
            prefixes.extend(entries(&folder.with_file_name("versions"), ""));
        }
        let real = python.canonicalize().ok();
        prefixes.extend(real.and_then(|file| Some(file.parent()?.parent()?.to_owned())));
    }
    prefixes.extend([root.join("usr/local"), root.join("usr")]);
    for prefix in prefixes {
        for version in entries(&prefix.join("lib"), "python3") {
            roots.extend([version.join("site-packages"), version.join("dist-packages")]);
        }
    }

    for folder in roots.iter().flat_map(|root| library_folders(root)) {
        // Links such as /usr/local/cuda would list every folder twice.
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if !seen.contains(&folder) && seen.insert(real) {
            locations.push(Location::Folder(folder));
        }
    }
    locations
}

/// Folders that may hold libraries below a folder the user set: itself, and those of a toolkit or of Python.
fn library_folders(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    folders.extend(["lib64", "lib"].map(|name| folder.join(name)));
    folders.extend(entries(&folder.join("targets"), "").into_iter().map(|target| target.join("lib")));
    folders.push(folder.join("extras/CUPTI/lib64"));
    folders.extend(entries(&folder.join("nvidia"), "").into_iter().map(|package| package.join("lib")));
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Entries of a folder whose names start with `begin`, sorted by name.
fn entries(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(begin))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_in_the_documented_order_without_duplicates() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for folder in [
            "mine/nvidia/cu13/lib",
            "usr/local/cuda-12.4/targets/x86_64-linux/lib",
            "usr/local/cuda-12.4/extras/CUPTI/lib64",
            "usr/local/cuda-13.0/lib64",
            "usr/lib/x86_64-linux-gnu",
            "wheel/lib/python3.12/site-packages/nvidia/cu13/lib",
            "venv/lib/python3.12/site-packages/nvidia/cublas/lib",
            "home/.local/lib/python3.11/site-packages/nvidia/nccl/lib",
            "conda/lib",
            "py/bin",
            "pyenv/shims",
            "pyenv/versions/3.11.7/lib/python3.11/site-packages",
            "py/lib/python3.13/site-packages/nvidia/cuda_nvrtc/lib",
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink("cuda-13.0", root.join("usr/local/cuda")).unwrap();
        std::fs::write(root.join("py/bin/python3"), "").unwrap();
        let variable = |name: &str| {
            let folder = match name {
                OVERRIDE => "mine",
                "VIRTUAL_ENV" => "venv",
                "CONDA_PREFIX" => "conda",
                "HOME" => "home",
                "PATH" => {
                    let folders = ["py/bin", "pyenv/shims"].map(|folder| root.join(folder));
                    return std::env::join_paths(folders).ok();
                }
                _ => return None,
            };
            Some(root.join(folder).into_os_string())
        };
        let found: Vec<String> = locations(root, Some(&root.join("wheel/bin/myxtts")), &variable)
            .iter()
            .map(|location| match location {
                Location::Linker => "linker".to_owned(),
                Location::Chosen(path) => format!("! {}", path.strip_prefix(root).unwrap().display()),
                Location::Folder(path) => path.strip_prefix(root).unwrap().display().to_string(),
            })
            .filter(|location| location.contains("lib") || location == "linker")
            .collect();
        assert_eq!(
            found,
            [
                "! mine/nvidia/cu13/lib",
                "linker",
                "usr/local/cuda/lib64",
                "usr/local/cuda-12.4/targets/x86_64-linux/lib",
                "usr/local/cuda-12.4/extras/CUPTI/lib64",
                "usr/lib/x86_64-linux-gnu",
                "usr/lib",
                "conda/lib",
                "wheel/lib/python3.12/site-packages",
                "wheel/lib/python3.12/site-packages/nvidia/cu13/lib",
                "venv/lib/python3.12/site-packages",
                "venv/lib/python3.12/site-packages/nvidia/cublas/lib",
                "home/.local/lib/python3.11/site-packages",
                "home/.local/lib/python3.11/site-packages/nvidia/nccl/lib",
                "py/lib/python3.13/site-packages",
                "py/lib/python3.13/site-packages/nvidia/cuda_nvrtc/lib",
                "pyenv/versions/3.11.7/lib/python3.11/site-packages",
            ]
        );
    }

    #[test]
    fn a_missing_user_folder_is_still_listed() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("gone");
        let variable = |name: &str| (name == OVERRIDE).then(|| gone.clone().into_os_string());
        assert_eq!(
            locations(root.path(), None, &variable),
            [Location::Chosen(gone.clone()), Location::Linker]
        );
    }
}
