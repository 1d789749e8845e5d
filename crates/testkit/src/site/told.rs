//! Contents of every error, for people and for programs.

use serde_json::Value;

use super::{Outcome, Site};

/// Numbers of bytes without a unit that a person could read.
pub fn raw_bytes(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|pair| {
        pair[1].starts_with("bytes")
            && pair[0].len() > 3
            && pair[0].bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Checks what is said to programs and to people.
#[track_caller]
pub fn is_told(code: i32, run: impl Fn(&[&str]) -> Outcome, arguments: &[&str]) {
    let json = run(&[&["--json"], arguments].concat());
    assert_eq!(json.code, code, "{arguments:?}: {json:?}");
    let error: Value = serde_json::from_str(&json.err)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {json:?}"));
    let said = |part: &str| error[part].as_str().unwrap_or_default().to_owned();
    let kind = ["", "failed", "bad-input", "refused"][usize::try_from(code).expect("a status")];
    assert_eq!(error["kind"], kind, "{arguments:?}");
    assert!(said("what").len() > 10, "{arguments:?}: {error}");
    assert!(
        said("help").split(' ').count() > 2,
        "{arguments:?}: {error}"
    );
    assert!(
        !raw_bytes(&said("what")) && !raw_bytes(&said("help")),
        "{arguments:?}: {error}"
    );
    let text = run(arguments);
    assert_eq!(text.code, code, "{arguments:?}: {text:?}");
    let has_help =
        text.err.contains("help: ") || text.err.contains("--help") || text.err.contains("tip: ");
    let is_error = text.err.contains("error: ") && has_help;
    let is_help = text.err.contains("Usage:") && text.err.contains("Commands:");
    assert!(is_error || is_help, "{arguments:?}: {text:?}");
    assert!(!raw_bytes(&text.err), "{arguments:?}: {text:?}");
}

/// A file of the site.
pub fn file(site: &Site, name: &str, content: &[u8]) -> String {
    std::fs::write(site.path(name), content).expect("a file");
    site.path(name).display().to_string()
}
