//! Dependencies between our crates go one way only, as the table in ARCHITECTURE.md says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Crate name -> the crates it may depend on, from the table's first and last column.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = std::fs::read_to_string(page).expect("ARCHITECTURE.md is part of the project");
    let names =
        |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    page.lines()
        .filter(|line| line.starts_with("| `myxtts"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            let name = names(cells[0]).pop_first().expect("the first cell names the crate");
            (name, names(cells[cells.len() - 1]))
        })
        .collect()
}

/// Edges that exist but are not allowed, as `from -> to`.
fn forbidden(edges: &[(String, String)], allowed: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    edges
        .iter()
        .filter(|(from, to)| !allowed.get(from).is_some_and(|targets| targets.contains(to)))
        .map(|(from, to)| format!("{from} -> {to}"))
        .collect()
}

/// Thin LTO optimises all crates at the level of the binary's crate. Below 3 it does not vectorise loops, which made training on a
/// CPU half as fast.
#[test]
fn the_shipped_binary_was_linked_without_vectorised_loops() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let section = |name: &str| {
        let (_, rest) = manifest.split_once(&format!("[{name}]\n")).unwrap_or_else(|| panic!("no [{name}]"));
        rest.split("\n[").next().unwrap().to_owned()
    };
    assert!(section("profile.dist").contains("lto = \"thin\""));
    assert!(section("profile.dist.package.myxtts").contains("opt-level = 3"));
}

#[test]
fn crates_depend_only_as_the_table_allows() {
    let metadata = MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .expect("cargo metadata runs");
    let ours: BTreeSet<String> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    let allowed = allowed();
    for name in &ours {
        assert!(allowed.contains_key(name), "crate {name} has no row in ARCHITECTURE.md");
    }
    let edges: Vec<(String, String)> = metadata
        .packages
        .iter()
        .flat_map(|package| {
            package
                .dependencies
                .iter()
                .filter(|d| d.kind != DependencyKind::Development && ours.contains(&d.name))
                .map(|d| (package.name.to_string(), d.name.clone()))
        })
        .collect();
    assert!(edges.contains(&("myxtts".into(), "myxtts-data".into())), "the edges were not read: {edges:?}");
    let forbidden = forbidden(&edges, &allowed);
    assert!(forbidden.is_empty(), "edges that ARCHITECTURE.md does not allow: {forbidden:?}");
}

#[test]
fn a_forbidden_edge_is_caught() {
    let edges = [("myxtts-run".to_owned(), "myxtts-data".to_owned())];
    assert_eq!(forbidden(&edges, &allowed()), ["myxtts-run -> myxtts-data"]);
}
