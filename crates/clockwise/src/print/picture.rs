//! Pictures that change in their place on a terminal, and text that fits it.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use crate::text::printable;

/// Characters in a line of text that is broken into lines.
const LINE_CHARS: usize = 100;

/// Rows and columns of a terminal that does not say how large it is.
const USUAL_SIZE: (usize, usize) = (24, 80);

/// What to write to a terminal to show `text` in the place of the picture before: from the upper left
/// corner, line over line, and then away with what is left. Not by erasing everything first: that
/// flickers, and many terminals keep what is erased in their history.
#[must_use]
pub(crate) fn picture(text: &str, terminal: impl AsFd) -> String {
    let size = tcgetwinsize(terminal).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let (rows, columns) = size.map_or(USUAL_SIZE, |size| {
        (usize::from(size.ws_row), usize::from(size.ws_col))
    });
    let mut picture = String::from("\x1b[H");
    for line in fitting(&printable(text), rows, columns) {
        picture += &line;
        picture += "\x1b[K\n";
    }
    picture + "\x1b[J"
}

/// The lines of `text` that fit, beginning with the first, and one that says what does not.
fn fitting(text: &str, rows: usize, columns: usize) -> Vec<String> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let rows_of = |line: &str| line.chars().count().div_ceil(columns).max(1);
    // The cursor stands below the last line.
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
        "... {more} more lines that a larger terminal shows"
    ));
    shown
}

/// `text` in lines of a length that is easy to read, each after `indent`, the first after `first`.
#[must_use]
pub(crate) fn wrapped(text: &str, first: &str, indent: &str) -> String {
    let mut lines = String::from(first);
    let mut length = first.chars().count();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        let chars = word.chars().count();
        if is_begun && length + 1 + chars > LINE_CHARS {
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
    fn what_does_not_fit_is_counted_and_not_scrolled_away() {
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
                "... 2 more lines that a larger terminal shows"
            ]
        );
        // Ten characters take three lines of four.
        assert_eq!(
            fitting(text, 6, 4),
            ["one", "", "... 3 more lines that a larger terminal shows"]
        );
        assert_eq!(fitting(text, 1, 80).len(), 1);
    }

    #[test]
    fn a_picture_gives_no_orders_but_its_own() {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let shown = picture("pool \u{1b}[31mred\nwell\n", nothing);
        assert_eq!(
            shown,
            "\u{1b}[Hpool \\u{1b}[31mred\u{1b}[K\nwell\u{1b}[K\n\u{1b}[J"
        );
    }

    #[test]
    fn long_text_is_broken_between_words() {
        let text = format!("{} end", "word ".repeat(30));
        let lines = wrapped(&text, "  - ", "    ");
        assert!(lines.lines().all(|line| line.chars().count() <= LINE_CHARS));
        assert_eq!(lines.lines().count(), 2);
        assert!(lines.starts_with("  - word word") && lines.contains("\n    word word"));
        assert_eq!(lines.split_whitespace().count(), 1 + 31);
        let long = "x".repeat(200);
        assert_eq!(wrapped(&long, "", ""), format!("{long}\n"));
    }
}
