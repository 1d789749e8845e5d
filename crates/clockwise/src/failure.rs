//! Failures of commands: what is wrong, where, and what to do about it.
//!
//! Every failure has one of four exit statuses: 2 wrong input, 3 the disks cannot carry the load, 4 another
//! server has taken the disks, 1 anything else. It is printed on standard error, as text for people or, with
//! `--json`, as one object.

mod refusal;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

pub use refusal::RefusalView;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use crate::text::printable;

/// The style of a failure's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// With the colours of a terminal.
    Coloured,
    /// Without colours.
    Plain,
}

/// The class of a failure, which decides the exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The operation failed: exit status 1.
    Failed,
    /// The input is wrong: exit status 2.
    BadInput,
    /// The disks or the memory cannot carry the load: exit status 3.
    Refused,
    /// Another server has taken the disks: exit status 4. A restart would take them back.
    TakenOver,
}

impl FailureKind {
    /// The exit status of the process.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed => 1,
            Self::BadInput => 2,
            Self::Refused => 3,
            Self::TakenOver => 4,
        })
    }
}

/// A place in a text file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// The path of the file as the user gave it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    span: Range<usize>,
}

impl Place {
    /// The place of the bytes `span` of `text`, which is the content of `file`.
    #[must_use]
    pub fn new(file: &Path, text: &str, span: Range<usize>) -> Self {
        let mut start = span.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let line = text[..start].matches('\n').count() + 1;
        let column = text[..start]
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        Self {
            file: file.display().to_string(),
            line,
            column,
            text: text.to_owned(),
            span: start..span.end.max(start).min(text.len()),
        }
    }
}

/// A failure as the user sees it. It is made from a [`FailureDraft`], so that each failure has help.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Failure {
    /// The class, which decides the exit status.
    pub kind: FailureKind,
    /// The error, in a sentence.
    pub what: String,
    /// The place in a file, for an error in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Box<Place>>,
    /// The remedy.
    pub help: String,
    /// For a refused reservation: its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<RefusalView>>,
}

/// A failure without help. [`help`](Self::help) completes it.
#[must_use]
#[derive(Debug)]
pub struct FailureDraft {
    kind: FailureKind,
    what: String,
    place: Option<Box<Place>>,
}

impl FailureDraft {
    fn new(kind: FailureKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            place: None,
        }
    }

    /// Adds the place in a file.
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// Adds the remedy, which completes the failure.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Failure {
        Failure {
            kind: self.kind,
            what: self.what,
            place: self.place,
            help: help.into(),
            refusal: None,
        }
    }
}

impl Failure {
    /// An operation failed: exit status 1.
    pub fn failed(what: impl Into<String>) -> FailureDraft {
        FailureDraft::new(FailureKind::Failed, what)
    }

    /// Another server has taken the disks: exit status 4.
    pub fn taken_over(what: impl Into<String>) -> FailureDraft {
        FailureDraft::new(FailureKind::TakenOver, what)
    }

    /// The input is wrong: exit status 2.
    pub fn bad_input(what: impl Into<String>) -> FailureDraft {
        FailureDraft::new(FailureKind::BadInput, what)
    }

    /// An error in this program itself: exit status 1.
    #[must_use]
    pub fn bug(what: impl Into<String>) -> Self {
        Self::failed(what).help("this is a bug in Clockwise; please report it with the log")
    }

    /// Replaces the remedy by a better one.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// The text for people. The place in the file is shown as the compiler shows one.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let (what, help) = (printable(&self.what), printable(&self.help));
        let title = Level::ERROR.primary_title(what.as_ref());
        let mut group = match &self.place {
            None => title.elements(Vec::<
                annotate_snippets::Snippet<'_, annotate_snippets::Annotation<'_>>,
            >::new()),
            Some(place) => title.element(
                Snippet::source(place.text.as_str())
                    .path(printable(&place.file))
                    .annotation(AnnotationKind::Primary.span(place.span.clone())),
            ),
        };
        group = group.element(Level::HELP.message(help.as_ref()));
        let renderer = match style {
            Style::Coloured => Renderer::styled(),
            Style::Plain => Renderer::plain(),
        };
        renderer.render(&[group]).clone()
    }
}

/// The remedy for a denied operation. It differs for root, who cannot be told to use root.
fn denied_help(error: &io::Error, is_root: bool) -> &'static str {
    let is_eperm = error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error());
    match (is_eperm, is_root) {
        (true, _) => {
            "the operation is forbidden even to the owner: by a security policy, such as a container's or SELinux's, or because the file is immutable or append-only (`lsattr` shows these flags, `chattr -i -a` clears them)"
        }
        (false, true) => {
            "the operation is forbidden even to root: the target is read-only (`blockdev --getro`, `mount`), is on a server that does not trust root, or a security policy forbids it"
        }
        (false, false) => {
            "run this as a user with permission, such as root or a member of the owning group, or change the permissions"
        }
    }
}

/// The remedy for an error of the operating system.
pub(crate) fn host_help(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "check the path: a part of it does not exist",
        ErrorKind::PermissionDenied => denied_help(error, rustix::process::geteuid().is_root()),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space there, or choose a place with more space"
        }
        ErrorKind::AlreadyExists => "remove the existing file, or choose another path",
        ErrorKind::IsADirectory => "give a file; this is a folder",
        ErrorKind::NotADirectory => "check the path: a part of it is not a folder",
        ErrorKind::AddrInUse => "stop the program that listens there, or choose another address",
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: remount it (`mount -o remount,rw`), or choose another place"
        }
        ErrorKind::ExecutableFileBusy => {
            "the file is a running program or in use as swap space (`swapon --show`): end that use, or choose another file"
        }
        _ => {
            "the operating system gave this reason; `dmesg` may tell more, and `ulimit -a` shows the limits of the process"
        }
    }
}

/// The failure of an operation on a path: `cannot read x: no such file`.
pub fn io_failure(doing: &str, path: &Path, error: &io::Error) -> Failure {
    host_failure(&format!("{doing} {}", path.display()), error)
}

/// The failure of an operation of the operating system: `cannot start a thread: no memory`.
pub fn host_failure(doing: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot {doing}: {error}")).help(host_help(error))
}

/// A text file, with which errors in it can name their place.
#[derive(Debug)]
pub struct SourceFile<'a> {
    /// The path of the file as the user gave it.
    pub path: &'a Path,
    /// Its content.
    pub text: String,
}

impl<'a> SourceFile<'a> {
    /// Reads `path`.
    ///
    /// # Errors
    /// When the file cannot be read or is not UTF-8. Both are wrong input.
    pub fn read(path: &'a Path) -> Result<Self, Failure> {
        let bytes = std::fs::read(path).map_err(|error| Failure {
            kind: FailureKind::BadInput,
            ..io_failure("read", path, &error)
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            Failure::bad_input(format!(
                "{} is not a UTF-8 text file: {error}",
                path.display()
            ))
            .help("give a text file in UTF-8")
        })?;
        Ok(Self { path, text })
    }

    /// Parses the text as TOML into a `T`.
    ///
    /// # Errors
    /// The first syntax or type error, with its place.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T, FailureDraft> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..self.text.len().min(1));
            self.bad_input(span, error.message().trim_end())
        })
    }

    /// Wrong input at `span`.
    pub fn bad_input(&self, span: Range<usize>, what: impl Into<String>) -> FailureDraft {
        Failure::bad_input(what).at(Place::new(self.path, &self.text, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_counted_in_lines_and_characters() {
        let place = Place::new(Path::new("f"), "ab\nçd = 1\n", 5..6);
        assert_eq!((place.line, place.column), (2, 2));
        let past = Place::new(Path::new("f"), "ab", 10..20);
        assert_eq!((past.line, past.column), (1, 3));
    }

    #[test]
    fn control_characters_in_a_failure_are_escaped() {
        let control = "\u{1b}[31m";
        let place = Place::new(Path::new(control), "a = \u{1b}[31m1\n", 0..1);
        let failure = Failure::bad_input(format!("no key in {control}"))
            .at(place)
            .help(format!("write {control}"));
        let text = failure.render(Style::Plain);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(text.matches("\\u{1b}[31m").count(), 3, "{text}");
    }

    #[test]
    fn help_for_root_does_not_suggest_root() {
        use rustix::io::Errno;
        let help = |errno: Errno, is_root| denied_help(&errno.into(), is_root);
        assert!(help(Errno::ACCESS, false).contains("such as root"));
        for (errno, is_root, part) in [
            (Errno::PERM, true, "chattr -i"),
            (Errno::PERM, false, "chattr -i"),
            (Errno::ACCESS, true, "read-only"),
        ] {
            let help = help(errno, is_root);
            assert!(help.contains(part) && !help.contains("as root"), "{help}");
        }
        assert!(host_help(&Errno::ROFS.into()).contains("remount,rw"));
        assert!(host_help(&Errno::TXTBSY.into()).contains("swap"));
    }

    #[test]
    fn failure_shows_its_place_and_its_help() {
        let failure = Failure::bad_input("no such key")
            .at(Place::new(Path::new("x.toml"), "a = 1\nb = 2\n", 6..7))
            .help("take it out");
        let text = failure.render(Style::Plain);
        assert!(text.contains("x.toml:2:1"), "{text}");
        assert!(
            text.contains("no such key") && text.contains("take it out"),
            "{text}"
        );
    }
}
