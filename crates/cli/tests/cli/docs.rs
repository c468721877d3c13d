//! The README, the book in `docs/src` and `bench`: links lead somewhere, figures match the raw results, the README stays short,
//! planted faults apply to the sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The README must fit on a few screens; everything else belongs in the book.
const README_LINES: usize = 130;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file below a folder.
fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(markdown_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The pages whose links are checked.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "README.fa.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "bench/README.md",
    ]
    .into_iter()
    .map(|name| root.join(name))
    .collect();
    pages.extend(markdown_below(&root.join("docs/src")));
    pages
}

/// Lines outside of code blocks, without their inline code.
fn prose(page: &str) -> Vec<String> {
    let mut in_block = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// Targets of inline links and images: `[text](target)`.
fn targets(page: &str) -> Vec<String> {
    let prose = prose(page).join("\n");
    let mut targets = Vec::new();
    let mut rest = prose.as_str();
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let Some(end) = rest.find([')', '\n']) else { break };
        if rest[end..].starts_with(')') {
            // A title may follow the target: `(target "title")`.
            targets.push(rest[..end].split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    targets
}

/// Anchors of a page, formed from its headings as mdBook and GitHub do: lower case, spaces to hyphens, punctuation dropped.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut found = BTreeSet::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

/// What is wrong with a link of a page; nothing for links to other sites.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if !path.exists() {
        return Some(format!("{}: there is no {target}", page.display()));
    }
    let anchor = anchor.filter(|_| path.extension().is_some_and(|extension| extension == "md"))?;
    let known = anchors(&read(&path));
    (!known.contains(anchor))
        .then(|| format!("{}: {target} names no heading; there are {known:?}", page.display()))
}

#[test]
fn links_and_images_have_targets() {
    let mut faults = Vec::new();
    for page in pages() {
        faults.extend(targets(&read(&page)).iter().filter_map(|target| broken(&page, target)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_broken_link_is_detected() {
    let page = root().join("README.md");
    assert!(broken(&page, "docs/src/no-such-page.md").is_some());
    assert!(broken(&page, "docs/src/training.md#no-such-heading").is_some());
    assert!(broken(&page, "docs/src/training.md#stages").is_none());
    assert!(broken(&page, "https://example.org/").is_none());
    let found =
        targets("see [a](b.md), ![c](d.png \"title\")\n```\n[no](e.md)\n```\n`[no](f.md)` [g](h.md#i)");
    assert_eq!(found, ["b.md", "d.png", "h.md#i"]);
}

#[test]
fn the_summary_lists_every_page() {
    let source = root().join("docs/src");
    let listed: BTreeSet<PathBuf> =
        targets(&read(&source.join("SUMMARY.md"))).iter().map(|target| source.join(target)).collect();
    let unlisted: Vec<PathBuf> = markdown_below(&source)
        .into_iter()
        .filter(|page| !page.ends_with("SUMMARY.md") && !listed.contains(page))
        .collect();
    assert!(unlisted.is_empty(), "not in docs/src/SUMMARY.md, so not in the book: {unlisted:?}");
}

#[test]
fn the_readme_is_short_and_names_the_test_command() {
    let readme = read(&root().join("README.md"));
    let lines = readme.lines().count();
    assert!(lines < README_LINES, "README.md has {lines} lines: move details to docs/src");
    assert!(readme.contains("cargo test --workspace"));
}

#[test]
fn tests_that_the_reliability_page_names_exist() {
    let root = root();
    let page = read(&root.join("docs/src/reliability.md"));
    let mut missing = Vec::new();
    let mut named = 0;
    for code in page.split('`').skip(1).step_by(2) {
        // `folder/file.rs`, or `folder/file.rs::test`.
        let (file, test) = code.split_once("::").map_or((code, None), |(file, test)| (file, Some(test)));
        if !file.ends_with(".rs") {
            continue;
        }
        let path = match file.split_once('/') {
            Some(("crates", _)) => root.join(file),
            Some((name, file)) => root.join("crates").join(name).join("tests").join(name).join(file),
            None => continue,
        };
        named += usize::from(test.is_some());
        let has = |test| {
            read(&path).contains(&format!("#[test]\n    fn {test}()"))
                || read(&path).contains(&format!("#[test]\nfn {test}()"))
        };
        if !path.exists() || !test.is_none_or(has) {
            missing.push(code);
        }
    }
    assert!(named > 40, "only {named} tests are named");
    assert!(missing.is_empty(), "docs/src/reliability.md names tests that do not exist: {missing:?}");
}

#[test]
fn published_figures_match_the_raw_results() {
    let root = root();
    // Every page, since numbers of runs below five are marked everywhere.
    let pages = std::fs::read_dir(root.join("docs/src")).unwrap().map(|entry| entry.unwrap().path());
    let checked = Command::new("python3")
        .arg(root.join("bench/figures/figures.py"))
        .arg("--check")
        .args(["README.md", "README.fa.md", "docs/src/images/training.svg"].map(|page| root.join(page)))
        .args(pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")))
        .output();
    match checked {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: no python3 ({error})"),
    }
}

#[test]
fn planted_faults_apply_to_the_sources() {
    // `tomllib` is part of Python since 3.11.
    let probe = Command::new("python3").args(["-c", "import tomllib"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("skipped: no Python 3.11 or later");
        return;
    }
    let checked =
        Command::new("python3").arg(root().join("bench/mutations/run.py")).arg("--check").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
