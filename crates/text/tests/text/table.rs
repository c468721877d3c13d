//! Tables of cleaner cases in `testdata/text`: input, a tab, what is expected.

use std::path::Path;

use proptest::prelude::ProptestConfig;

/// One line of a table.
pub struct Case {
    /// Counted from 1.
    pub line: usize,
    pub input: String,
    pub expected: String,
}

/// Reads a table; `##` begins a remark.
pub fn table(name: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/text").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with("##"))
        .map(|(number, line)| {
            let (input, expected) =
                line.split_once('\t').unwrap_or_else(|| panic!("{name}:{}: no tab", number + 1));
            Case { line: number + 1, input: input.to_owned(), expected: expected.to_owned() }
        })
        .collect()
}

/// How often a law of the cleaners is tried; `PROPTEST_CASES` asks for more.
pub fn laws() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    ProptestConfig { cases: config.cases.max(600), ..config }
}
