//! Text that is safe to print on a terminal.

use std::borrow::Cow;

/// Returns `text` with its control characters escaped, line feeds excepted. Names come from files and from
/// other people, and must not control the terminal.
#[must_use]
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}
