//! Names for people: which are taken, and how one is shown that was taken by an older version.
//!
//! A name is read in tables and typed in commands, so nothing in it may be invisible, end a line, or change
//! the order in which its neighbours are read.

use std::borrow::Cow;

use crate::limits::NAME_BYTES_MAX;

/// Characters that are not seen or change how others are shown, beside the control characters: Unicode's
/// formats, its separators of lines and paragraphs, and fillers.
const UNSEEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

fn is_unseen(character: char) -> bool {
    let follows = UNSEEN.partition_point(|(first, _)| *first <= character);
    character.is_control() || follows > 0 && character <= UNSEEN[follows - 1].1
}

/// Why a text is no name; `None` if it is one.
#[must_use]
pub fn flaw(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > NAME_BYTES_MAX {
        Some("it is longer than 255 bytes")
    } else if name.contains('/') {
        Some("it has a slash in it")
    } else if name.chars().any(char::is_control) {
        Some("it has a control character in it")
    } else if name.chars().any(is_unseen) {
        Some("it has an invisible character in it, or one that changes the direction of the text")
    } else if name.trim().is_empty() {
        Some("it has only blanks in it")
    } else if name == "." || name == ".." {
        Some("it means a directory")
    } else {
        None
    }
}

/// A name as it is shown: as it is, and one that is none with what is not seen in it escaped.
#[must_use]
pub fn shown(name: &str) -> Cow<'_, str> {
    if name.trim().is_empty() {
        return Cow::Owned(format!("{name:?}"));
    }
    if !name.chars().any(is_unseen) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() * 2);
    for character in name.chars() {
        if is_unseen(character) {
            text.extend(character.escape_unicode());
        } else {
            text.push(character);
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_ranges_are_sorted_and_disjoint() {
        assert!(UNSEEN.iter().all(|(first, last)| first <= last));
        assert!(UNSEEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
        for (first, last) in UNSEEN {
            assert!(is_unseen(*first) && is_unseen(*last), "{first:?}");
        }
        assert!(!is_unseen(' ') && !is_unseen('\u{3000}') && !is_unseen('\u{10ffff}'));
    }

    #[test]
    fn a_name_is_shown_as_it_is_or_escaped() {
        assert_eq!(shown("cam 1 \u{3000}日本"), "cam 1 \u{3000}日本");
        assert_eq!(shown("a\u{202e}b\nc"), "a\\u{202e}b\\u{a}c");
        assert_eq!(shown("  "), "\"  \"");
        assert_eq!(shown("\u{2028}"), "\"\\u{2028}\"");
        assert_eq!(shown(""), "\"\"");
    }
}
