//! Text that is redrawn in place on a terminal, and text that is wrapped into lines.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use crate::text::printable;

/// The most characters in a line of wrapped text.
const LINE_CHARS_MAX: usize = 100;

/// Rows and columns of a terminal whose size is not known.
const DEFAULT_SIZE: (usize, usize) = (24, 80);

/// The control sequence that shows `text` over the previous picture: it writes line by line from the upper
/// left corner, and erases only the rest of each line and of the screen. Erasing the whole screen first would
/// flicker, and many terminals keep erased text in their history.
#[must_use]
pub(crate) fn picture(text: &str, terminal: impl AsFd) -> String {
    let size = tcgetwinsize(terminal).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let (rows, columns) = size.map_or(DEFAULT_SIZE, |size| {
        (usize::from(size.ws_row), usize::from(size.ws_col))
    });
    let mut picture = String::from("\x1b[H");
    for line in fitting(&printable(text), rows, columns) {
        picture += &line;
        picture += "\x1b[K\n";
    }
    picture + "\x1b[J"
}

/// The first lines of `text` that fit, and a line with the number of the others if not all fit.
fn fitting(text: &str, rows: usize, columns: usize) -> Vec<String> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let rows_of = |line: &str| line.chars().count().div_ceil(columns).max(1);
    // The cursor needs a row below the last line.
    let rows = rows.saturating_sub(1);
    if lines.iter().map(|line| rows_of(line)).sum::<usize>() <= rows {
        return lines.into_iter().map(str::to_owned).collect();
    }
    let mut left = rows.saturating_sub(1);
    let fit = lines.iter().take_while(|line| {
        let rows = rows_of(line);
        let fits = rows <= left;
        left = left.saturating_sub(rows);
        fits
    });
    let mut shown: Vec<String> = fit.map(|line| (*line).to_owned()).collect();
    let more = lines.len() - shown.len();
    shown.push(format!(
        "... {more} more lines; a larger terminal shows them"
    ));
    shown
}

/// Wraps `text` into lines of at most [`LINE_CHARS_MAX`] characters. The first line begins with `first`, the
/// others with `indent`.
#[must_use]
pub(crate) fn wrapped(text: &str, first: &str, indent: &str) -> String {
    let mut lines = String::from(first);
    let mut length = first.chars().count();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        let chars = word.chars().count();
        if is_begun && length + 1 + chars > LINE_CHARS_MAX {
            lines.push('\n');
            lines += indent;
            length = indent.chars().count();
        } else if is_begun {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += chars;
        is_begun = true;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let text = "one\n\n0123456789\nfour\nfive\n";
        assert_eq!(
            fitting(text, 6, 80),
            ["one", "", "0123456789", "four", "five"]
        );
        assert_eq!(
            fitting(text, 5, 80),
            [
                "one",
                "",
                "0123456789",
                "... 2 more lines; a larger terminal shows them"
            ]
        );
        // Ten characters take three rows of four columns.
        assert_eq!(
            fitting(text, 6, 4),
            ["one", "", "... 3 more lines; a larger terminal shows them"]
        );
        assert_eq!(fitting(text, 1, 80).len(), 1);
    }

    #[test]
    fn picture_escapes_control_characters_of_its_text() {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let shown = picture("pool \u{1b}[31mred\nwell\n", nothing);
        assert_eq!(
            shown,
            "\u{1b}[Hpool \\u{1b}[31mred\u{1b}[K\nwell\u{1b}[K\n\u{1b}[J"
        );
    }

    #[test]
    fn long_text_is_wrapped_between_words() {
        let text = format!("{} end", "word ".repeat(30));
        let lines = wrapped(&text, "  - ", "    ");
        assert!(
            lines
                .lines()
                .all(|line| line.chars().count() <= LINE_CHARS_MAX)
        );
        assert_eq!(lines.lines().count(), 2);
        assert!(lines.starts_with("  - word word") && lines.contains("\n    word word"));
        assert_eq!(lines.split_whitespace().count(), 1 + 31);
        let long = "x".repeat(200);
        assert_eq!(wrapped(&long, "", ""), format!("{long}\n"));
    }
}
