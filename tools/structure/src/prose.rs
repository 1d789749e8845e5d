//! Figures of the language: hard comments, and the length of sentences in documents.
//!
//! A comment line is hard if it begins with one of [`HARD`]: its sentence mostly has a relative clause in place of a
//! subject.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::rust_files;

/// Beginnings of sentences whose subject is a relative clause.
pub(crate) const HARD: [&str; 4] = ["Who", "What", "Of which", "So many"];

/// The most hard comments that `structure check` allows.
pub(crate) const HARD_COMMENTS_MAX: usize = 50;

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

fn begins_with(text: &str, words: &str) -> bool {
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

/// The hard comments of a Rust source.
pub(crate) fn hard_comments(source: &str) -> usize {
    let comments = source.lines().filter_map(comment);
    let is_hard = |text: &&str| HARD.iter().any(|words| begins_with(text, words));
    comments.filter(is_hard).count()
}

/// The words of each sentence of a Markdown page, without headings, tables, and code that stands alone.
pub(crate) fn sentence_words(page: &str) -> Vec<usize> {
    let mut words = Vec::new();
    let mut count = 0;
    let mut is_code = false;
    let mut end = |count: &mut usize| {
        if *count > 0 {
            words.push(std::mem::take(count));
        }
    };
    for line in page.lines() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() || line.starts_with(['#', '|', '<']) {
            end(&mut count);
            continue;
        }
        let (item, line) = match line.split_once(' ') {
            Some((mark, rest)) if is_list_mark(mark) => (true, rest),
            _ => (false, line),
        };
        if item {
            end(&mut count);
        }
        for word in line.split_whitespace() {
            count += usize::from(word.contains(char::is_alphanumeric));
            let word = word.trim_end_matches([')', '*', '_', '"', '`']);
            if word.ends_with(['.', '!', '?', ';']) && word.len() > 2 {
                end(&mut count);
            }
        }
    }
    end(&mut count);
    words
}

fn is_list_mark(word: &str) -> bool {
    let number = word.strip_suffix('.');
    matches!(word, "*" | "-")
        || number.is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()))
}

/// The sources of the repository.
fn sources() -> Result<Vec<PathBuf>, String> {
    let mut files = rust_files(Path::new("crates"))?;
    files.extend(rust_files(Path::new("tools"))?);
    Ok(files)
}

/// The number of hard comments, if there are more than [`HARD_COMMENTS_MAX`].
///
/// # Errors
/// A file that cannot be read, named.
pub(crate) fn too_many_hard_comments() -> Result<Option<usize>, String> {
    let mut count = 0;
    for file in sources()? {
        count += hard_comments(&read(&file)?);
    }
    Ok((count > HARD_COMMENTS_MAX).then_some(count))
}

/// Figures with their names.
///
/// # Errors
/// A file that cannot be read, named.
pub(crate) fn figures() -> Result<[(&'static str, usize); 6], String> {
    let (mut product, mut tests, mut hard) = (0, 0, 0);
    for file in sources()? {
        let text = read(&file)?;
        let is_test = |part: &str| matches!(part, "tests" | "tests.rs" | "benches" | "testkit");
        let lines = text.lines().count();
        if file.iter().any(|part| part.to_str().is_some_and(is_test)) {
            tests += lines;
        } else {
            product += lines;
        }
        hard += hard_comments(&text);
    }
    let mut pages = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .to_vec();
    pages_below(Path::new("docs"), &mut pages)?;
    let mut words = Vec::new();
    let mut docs = 0;
    for page in pages {
        let text = read(&page)?;
        docs += text.lines().count();
        words.extend(sentence_words(&text));
    }
    words.sort_unstable();
    Ok([
        ("lines of product code", product),
        ("lines of tests and benchmarks", tests),
        ("lines of documents", docs),
        ("hard comments", hard),
        (
            "median words of a sentence in documents",
            words[words.len() / 2],
        ),
        (
            "words of the longest tenth, at least",
            words[words.len() * 9 / 10],
        ),
    ])
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn pages_below(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            pages_below(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}
