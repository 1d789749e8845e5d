//! The output of commands: tables and sentences for people, or one JSON value for programs.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::picture::picture;
use crate::failure::{Failure, Style, host_failure};
use crate::text::printable;

/// The format of results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// JSON for programs.
    Json,
    /// Text for people.
    Text,
}

/// Prints a command's results.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: Format,
}

impl Output {
    /// Prints results in this format.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// True if results are printed as JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints `value` as JSON, or the text of `text` for people.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn result<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.bytes(self.line(value, text)?.as_bytes())
    }

    /// Prints a result on standard error, for commands whose standard output carries data.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn result_on_stderr<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let line = self.line(value, text)?;
        // A closed standard error is not a failure of the command.
        let _ = io::stderr().lock().write_all(line.as_bytes());
        Ok(())
    }

    fn line<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        let mut line = if self.is_json() {
            serde_json::to_string_pretty(value).map_err(|error| {
                Failure::bug(format!("cannot write the result as JSON: {error}"))
            })?
        } else {
            printable(&text()).into_owned()
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        Ok(line)
    }

    /// Prints bytes as they are.
    ///
    /// # Errors
    /// When standard output cannot be written. A reader that closed its pipe is not an error.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(host_failure("write to standard output", &error))
            }
            _ => Ok(()),
        }
    }

    /// Prints a whole text file as it is, or as the member `name` of a JSON object.
    ///
    /// # Errors
    /// As [`Output::bytes`].
    pub fn text_file(&self, text: &[u8], name: &str) -> Result<ExitCode, Failure> {
        if self.is_json() {
            let text = String::from_utf8_lossy(text);
            self.result(&serde_json::json!({ name: text }), String::new)?;
        } else {
            self.bytes(text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// False if standard output is a pipe without a reader.
    #[must_use]
    pub fn has_reader(&self) -> bool {
        let out = io::stdout();
        let mut waits = [PollFd::new(&out, PollFlags::empty())];
        // A pipe without a reader reports an error at once. If poll fails, a reader is assumed.
        poll(&mut waits, Some(&Timespec::default())).is_err()
            || !waits[0].revents().contains(PollFlags::ERR)
    }

    /// Prints a remark on standard error, for people only.
    pub fn note(&self, text: &str) {
        if !self.is_json() {
            // A closed standard error is not a failure of the command.
            let _ = writeln!(io::stderr().lock(), "{}", printable(text));
        }
    }

    /// True if standard error is a terminal that can show changing pictures.
    #[must_use]
    pub fn has_pictures(&self) -> bool {
        !self.is_json() && io::stderr().is_terminal()
    }

    /// Shows a picture on the terminal, over the previous one.
    pub fn picture(&self, text: &str) {
        let mut err = io::stderr().lock();
        let picture = picture(text, &err);
        // A closed standard error is not a failure of the command.
        let _ = err.write_all(picture.as_bytes());
    }

    /// Prints a failure.
    pub fn failure(&self, failure: &Failure) {
        let mut err = io::stderr().lock();
        let text = if self.is_json() {
            serde_json::to_string(failure).unwrap_or_else(|_| failure.what.clone())
        } else {
            let has_colours = err.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            failure.render(match has_colours {
                true => Style::Coloured,
                false => Style::Plain,
            })
        };
        // A failure to print the failure cannot be reported anywhere.
        let _ = writeln!(err, "{text}");
    }

    /// A progress bar of `total` steps, hidden in JSON output and if standard error is not a terminal.
    #[must_use]
    pub fn progress(&self, total: u64, what: &'static str) -> ProgressBar {
        let target = if self.is_json() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let style =
            ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len} {eta_precise} {msg}")
                .expect("the template is a constant and right");
        bar.set_style(style);
        bar.set_prefix(what);
        bar
    }

    /// As [`progress`](Self::progress), for steps whose number and time the caller says in the message.
    #[must_use]
    pub fn measure_progress(&self) -> ProgressBar {
        let bar = self.progress(0, "measuring");
        bar.set_style(
            ProgressStyle::with_template("{prefix} {bar:32} {msg}")
                .expect("the template is a constant and right"),
        );
        bar
    }

    /// Shows a spinner during `work`, whose duration is not known.
    pub fn during<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let bar = self.spinner(what);
        let done = work();
        bar.finish_and_clear();
        done
    }

    /// Like [`during`](Self::during), for a step of a long command. Without a terminal the step is printed
    /// once.
    pub fn step<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        if !self.has_pictures() {
            self.note(&format!("{what} ..."));
        }
        self.during(what, work)
    }

    /// Shows a spinner until it is finished.
    #[must_use]
    pub fn spinner(&self, what: &'static str) -> ProgressBar {
        let target = if self.is_json() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .expect("the template is a constant and right"),
        );
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// A progress bar for bytes; without a total it is a spinner.
    #[must_use]
    pub fn byte_progress(&self, total: Option<u64>, what: &'static str) -> ProgressBar {
        let target = if self.is_json() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => {
                "{prefix} {bar:32} {binary_bytes}/{binary_total_bytes} {decimal_bytes_per_sec} {msg}"
            }
            None => "{prefix} {spinner} {binary_bytes} {decimal_bytes_per_sec} {elapsed} {msg}",
        };
        bar.set_style(
            ProgressStyle::with_template(template).expect("the template is a constant and right"),
        );
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// A table of `rows` under `head`. The columns in `right` are right-aligned.
#[must_use]
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    right: &[usize],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head);
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Named values, one per line.
#[must_use]
pub(crate) fn list(pairs: &[(&str, String)]) -> String {
    let width = pairs
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    pairs
        .iter()
        .map(|(name, value)| format!("{name:<width$}  {value}\n"))
        .collect()
}

/// A number with its noun: `1 disk`, `2 disks`.
#[must_use]
pub(crate) fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Missed deadlines, net of the host's own lateness. The number including it follows in brackets if it is
/// larger.
#[must_use]
pub(crate) fn missed(net: u64, gross: u64) -> String {
    if gross > net {
        format!("{net} ({gross})")
    } else {
        net.to_string()
    }
}

/// A share from 0 to 1 in percent.
#[must_use]
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The last part of a disk's path, for tables.
#[must_use]
pub(crate) fn short(name: &str) -> String {
    name.rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(name)
        .to_owned()
}
