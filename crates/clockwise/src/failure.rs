//! Why a command did not do what it was asked to: what, where, and what to do about it.
//!
//! Every failure ends in one of four exit statuses: 2 the input is wrong, 3 the disks cannot carry
//! what was asked, 4 another server has taken the disks, 1 everything else. People read it on standard error; with `--json` it is one
//! object there.

mod refusal;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

pub use refusal::RefusalView;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use crate::text::printable;

/// Which of the exit statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It could not be done: exit status 1.
    Failed,
    /// What was asked makes no sense: exit status 2.
    BadInput,
    /// It makes sense, but does not fit: exit status 3.
    Refused,
    /// Another server has taken the disks, and starting again would take them back: exit status 4.
    TakenOver,
}

impl FailureKind {
    /// The status the process ends with.
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

/// Where in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// The file as it was named.
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

/// A failure, as it is told to the user. It begins as a [`Wrong`]; there is none without help.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Failure {
    /// Which exit status.
    pub kind: FailureKind,
    /// What is wrong, in a sentence.
    pub what: String,
    /// Where in a file, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Box<Place>>,
    /// The remedy.
    pub help: String,
    /// For a reservation that does not fit: the numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<RefusalView>>,
}

/// What is wrong and where; a [`Failure`] when it says what to do about it as well.
#[must_use]
#[derive(Debug)]
pub struct Wrong {
    kind: FailureKind,
    what: String,
    place: Option<Box<Place>>,
}

impl Wrong {
    fn new(kind: FailureKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            place: None,
        }
    }

    /// The same, at a place in a file.
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// With what to do about it.
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
    /// Something could not be done.
    pub fn failed(what: impl Into<String>) -> Wrong {
        Wrong::new(FailureKind::Failed, what)
    }

    /// Another server has taken the disks.
    pub fn taken_over(what: impl Into<String>) -> Wrong {
        Wrong::new(FailureKind::TakenOver, what)
    }

    /// Something asked makes no sense.
    pub fn bad_input(what: impl Into<String>) -> Wrong {
        Wrong::new(FailureKind::BadInput, what)
    }

    /// A part of this program failed where it cannot.
    #[must_use]
    pub fn bug(what: impl Into<String>) -> Self {
        Self::failed(what).help("this is an error of Clockwise; please report it with the log")
    }

    /// The same, with something better to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// As people read it, with the place in the file shown as the compiler shows one.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
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
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&[group]).clone()
    }
}

/// The remedy for something that is not allowed. Root needs another one than everybody else.
fn denied_help(error: &io::Error, is_root: bool) -> &'static str {
    let is_eperm = error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error());
    match (is_eperm, is_root) {
        (true, _) => {
            "not even the owner may: a security policy forbids it, such as a container's or SELinux's, or it is a file that is immutable or append-only (`lsattr` shows that, `chattr -i -a` takes it away)"
        }
        (false, true) => {
            "root may not either: it is read-only (`blockdev --getro`, `mount`), on a server that does not trust root, or a security policy forbids it"
        }
        (false, false) => {
            "do it as somebody who may, such as root or a member of the group that owns it, or change who may"
        }
    }
}

/// What to do about an error of the operating system.
pub(crate) fn host_help(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "check the path: a part of it is not there",
        ErrorKind::PermissionDenied => denied_help(error, rustix::process::geteuid().is_root()),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room there, or name a place with more"
        }
        ErrorKind::AlreadyExists => "take away what is there, or name another path",
        ErrorKind::IsADirectory => "name a file; this is a folder",
        ErrorKind::NotADirectory => "check the path: a part of it is no folder",
        ErrorKind::AddrInUse => "end what listens there, or name another address",
        ErrorKind::ReadOnlyFilesystem => {
            "it is read-only: mount it so that it can be written (`mount -o remount,rw`), or name another place"
        }
        ErrorKind::ExecutableFileBusy => {
            "it runs as a program, or is used as swap space (`swapon --show`): end that, or name another file"
        }
        _ => {
            "that is the operating system's reason; `dmesg` may say more, and `ulimit -a` which limits there are"
        }
    }
}

/// The failure of an operation on a path: `cannot read x: no such file`.
pub fn io_failure(doing: &str, path: &Path, error: &io::Error) -> Failure {
    host_failure(&format!("{doing} {}", path.display()), error)
}

/// The failure of something that the operating system does: `cannot start a thread: no memory`.
pub fn host_failure(doing: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot {doing}: {error}")).help(host_help(error))
}

/// The content of a text file, and values of it that know where they stand.
#[derive(Debug)]
pub struct SourceFile<'a> {
    /// The file as it was named.
    pub path: &'a Path,
    /// Its content.
    pub text: String,
}

impl<'a> SourceFile<'a> {
    /// Reads `path`.
    ///
    /// # Errors
    /// When it cannot be read or is not UTF-8; it is bad input either way.
    pub fn read(path: &'a Path) -> Result<Self, Failure> {
        let bytes = std::fs::read(path).map_err(|error| Failure {
            kind: FailureKind::BadInput,
            ..io_failure("read", path, &error)
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            Failure::bad_input(format!("{} is not a text file: {error}", path.display()))
                .help("name a text file, in UTF-8")
        })?;
        Ok(Self { path, text })
    }

    /// Parses it as TOML of the form `T`.
    ///
    /// # Errors
    /// When it is not, with the place.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T, Wrong> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..self.text.len().min(1));
            self.wrong(span, error.message().trim_end())
        })
    }

    /// Something wrong at `span`.
    pub fn wrong(&self, span: Range<usize>, what: impl Into<String>) -> Wrong {
        Failure::bad_input(what).at(Place::new(self.path, &self.text, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_lines_and_characters() {
        let place = Place::new(Path::new("f"), "ab\nçd = 1\n", 5..6);
        assert_eq!((place.line, place.column), (2, 2));
        let past = Place::new(Path::new("f"), "ab", 10..20);
        assert_eq!((past.line, past.column), (1, 3));
    }

    #[test]
    fn names_in_a_failure_give_a_terminal_no_orders() {
        let order = "\u{1b}[31m";
        let place = Place::new(Path::new(order), "a = \u{1b}[31m1\n", 0..1);
        let failure = Failure::bad_input(format!("no key in {order}"))
            .at(place)
            .help(format!("write {order}"));
        let text = failure.render(false);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(text.matches("\\u{1b}[31m").count(), 3, "{text}");
    }

    #[test]
    fn root_is_not_told_to_be_root() {
        use rustix::io::Errno;
        let help = |errno: Errno, is_root| denied_help(&errno.into(), is_root);
        assert!(help(Errno::ACCESS, false).contains("such as root"));
        for (errno, is_root, says) in [
            (Errno::PERM, true, "chattr -i"),
            (Errno::PERM, false, "chattr -i"),
            (Errno::ACCESS, true, "read-only"),
        ] {
            let help = help(errno, is_root);
            assert!(help.contains(says) && !help.contains("as root"), "{help}");
        }
        assert!(host_help(&Errno::ROFS.into()).contains("remount,rw"));
        assert!(host_help(&Errno::TXTBSY.into()).contains("swap"));
    }

    #[test]
    fn a_failure_shows_where_and_what_to_do() {
        let failure = Failure::bad_input("no such key")
            .at(Place::new(Path::new("x.toml"), "a = 1\nb = 2\n", 6..7))
            .help("take it out");
        let text = failure.render(false);
        assert!(text.contains("x.toml:2:1"), "{text}");
        assert!(
            text.contains("no such key") && text.contains("take it out"),
            "{text}"
        );
    }
}
