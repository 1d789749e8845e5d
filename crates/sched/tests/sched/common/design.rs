//! Reads the figures of the searches in `docs/design/scheduling.md`, so that each test compares its own with
//! them.

/// The page, its lines joined.
fn text() -> String {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/design/scheduling.md"
    );
    std::fs::read_to_string(page).expect("docs/design/scheduling.md is in the repository")
}

/// A number as the page writes it: 1,234,567.
pub(crate) fn number(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = (0..digits.len())
        .rev()
        .step_by(3)
        .map(|last| &digits[last.saturating_sub(2)..=last])
        .collect();
    groups.into_iter().rev().collect::<Vec<_>>().join(",")
}

/// The page says this, wherever its lines are broken.
pub(crate) fn assert_says(words: &str) {
    let text = text().replace('\n', " ");
    assert!(
        text.contains(words),
        "docs/design/scheduling.md does not say: {words}"
    );
}

/// The cells after the first of the rows that are about this search: its name, and whatever is explained
/// after a colon.
pub(crate) fn rows(search: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let mut cells = inner.split(" | ").map(str::to_owned);
        let name = cells.next()?;
        let is_it = name == search || name.starts_with(&format!("{search}:"));
        is_it.then(|| cells.collect())
    };
    text().lines().filter_map(cells).collect()
}
