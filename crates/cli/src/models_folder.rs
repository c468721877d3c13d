//! Models that come with the program or are kept for it, each a folder in a folder named `models`.

use std::path::{Path, PathBuf};

use myxtts_model::weights::folder::MANIFEST;

use crate::output::errln;

/// Name of the folder.
pub const MODELS_FOLDER: &str = "models";

/// The folders that are searched, in order: in the working directory, next to the program, and where packages install it.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok().and_then(|path| path.parent().map(Path::to_owned));
    let installed =
        program.as_ref().and_then(|folder| folder.parent()).map(|prefix| prefix.join("share/myxtts"));
    let places = [Some(PathBuf::new()), program, installed];
    places.into_iter().flatten().map(|place| place.join(MODELS_FOLDER)).collect()
}

/// Finds the model of a name and says where it is; `None` where there is none, or where the name is a path of several parts.
pub fn find_noted(named: &Path) -> Option<PathBuf> {
    let name = named.file_name().filter(|name| named.as_os_str() == *name)?;
    let mut models = folders().into_iter().map(|folder| folder.join(name));
    models.find(|model| model.join(MANIFEST).is_file()).map(noted)
}

/// Finds the first model by name in the first folder that has one, and says which it is.
pub fn first_noted() -> Option<PathBuf> {
    let mut models = folders().into_iter().filter_map(|folder| Some(folder.join(names(&folder).first()?)));
    models.next().map(noted)
}

fn noted(model: PathBuf) -> PathBuf {
    errln!("note: using the model {}", model.display());
    model
}

/// Names of all models, those in the working directory first.
pub fn all_names() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in folders().iter().flat_map(|folder| names(folder)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let models = entries.filter(|entry| entry.path().join(MANIFEST).is_file());
    let mut names: Vec<String> = models.filter_map(|model| model.file_name().into_string().ok()).collect();
    names.sort();
    names
}
