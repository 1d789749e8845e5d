//! Text that may be shown.

use std::borrow::Cow;

/// `text` in which nothing gives a terminal orders: names come from files and from other people.
#[must_use]
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_order = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_order) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_order(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}
