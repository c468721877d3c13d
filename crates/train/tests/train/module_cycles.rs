//! No two top-level modules of this crate depend on each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The modules that each module names after `crate::`.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// The first names after `crate::` in a source file, in its `use` lines and in its functions, without comments and unit
/// tests. Only a test module ends the file: a single function for tests, as `align` has one, is followed by other code.
fn named_modules(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String = source.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(
        String::new(),
        |mut all, line| {
            all.push_str(line);
            all.push(' ');
            all
        },
    );
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    for (at, marker) in code.match_indices("crate::") {
        let rest = &code[at + marker.len()..];
        match rest.strip_prefix('{') {
            None => {
                found.insert(word(rest));
            }
            // `use crate::{a, b::{c, d}}`: names at the first level of braces.
            Some(list) => {
                let mut depth = 0;
                let mut item_starts = true;
                for (at, c) in list.char_indices() {
                    if item_starts && depth == 0 {
                        found.insert(word(&list[at..]));
                    }
                    item_starts = c == ',';
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

fn add_files(folder: &Path, module: Option<&str>, edges: &mut Edges) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = module.unwrap_or(&stem);
        if path.is_dir() {
            add_files(&path, Some(module), edges);
        } else if path.extension().is_some_and(|extension| extension == "rs") && module != "lib" {
            let named = named_modules(&std::fs::read_to_string(&path).unwrap());
            edges.entry(module.to_owned()).or_default().extend(named);
        }
    }
}

/// A cycle, as the modules along it; `None` if there is none.
fn cycle(edges: &Edges) -> Option<Vec<String>> {
    fn visit(module: &str, edges: &Edges, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(first) = path.iter().position(|other| other == module) {
            path.drain(..first);
            return true;
        }
        if done.contains(module) {
            return false;
        }
        path.push(module.to_owned());
        for next in edges.get(module).into_iter().flatten().filter(|next| *next != module) {
            if edges.contains_key(next) && visit(next, edges, path, done) {
                return true;
            }
        }
        path.pop();
        done.insert(module.to_owned());
        false
    }
    let (mut path, mut done) = (Vec::new(), BTreeSet::new());
    edges.keys().any(|module| visit(module, edges, &mut path, &mut done)).then_some(path)
}

#[test]
fn top_level_modules_form_no_cycle() {
    let mut edges = Edges::new();
    add_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut edges);
    assert!(edges.len() > 20, "the sources were not found: {edges:?}");
    // A re-export of the crate's root, such as `crate::Model`, would hide the module that it comes from.
    let hidden: Vec<&String> =
        edges.values().flatten().filter(|name| name.starts_with(|c: char| c.is_uppercase())).collect();
    assert!(hidden.is_empty(), "name the modules of {hidden:?}");
    assert_eq!(cycle(&edges), None, "modules that depend on each other");
}

#[test]
fn a_planted_cycle_is_found() {
    let module = |name: &str, source: &str| (name.to_owned(), named_modules(source));
    let edges: Edges = [
        module("a", "use crate::b::X; // crate::comment"),
        module("b", "use crate::{error::E, c::{D, crate_like}};"),
        module("c", "#[cfg(test)]\nfn known() {}\nfn f() { crate::a::g() }\n#[cfg(test)]\nmod tests { use crate::d::h; }"),
        module("error", ""),
    ]
    .into();
    assert_eq!(edges["b"], ["c", "error"].map(str::to_owned).into());
    assert_eq!(
        edges["c"],
        ["a"].map(str::to_owned).into(),
        "a path in a function, and not that of a unit test"
    );
    assert_eq!(cycle(&edges), Some(["a", "b", "c"].map(str::to_owned).to_vec()));
    let without: Edges = edges.into_iter().filter(|(name, _)| name != "c").collect();
    assert_eq!(cycle(&without), None);
}
