//! Tables of cleaner cases in `testdata/text`: input, a tab, expected output.

use std::path::Path;

use proptest::prelude::ProptestConfig;

/// One line of a table.
pub struct Case {
    /// Line number, from 1.
    pub line: usize,
    pub input: String,
    pub expected: String,
}

/// Reads a table; `##` starts a comment.
pub fn table(name: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/text").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with("##"))
        .map(|(number, line)| {
            let (input, expected) =
                line.split_once('\t').unwrap_or_else(|| panic!("{name}:{}: the line has no tab", number + 1));
            Case { line: number + 1, input: input.to_owned(), expected: expected.to_owned() }
        })
        .collect()
}

/// Number of property test cases; `PROPTEST_CASES` overrides it.
pub fn property_config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    ProptestConfig { cases: config.cases.max(600), ..config }
}
