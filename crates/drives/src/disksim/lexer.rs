//! Words of DiskSim's parameter files, with the files that they include.
//!
//! `source FILE` stands for the tokens of that file, wherever it is. A comment begins with `#` and ends with
//! its line. A word is any sequence of characters other than blanks and `; { } , [ ] : ? =`.

use std::rc::Rc;

use super::{Files, ImportError};

/// Bounds on input: far more than any drive needs, and little enough to be read in a moment.
const FILE_BYTES_MAX: usize = 64 << 20;
const TOKENS_MAX: usize = 4_000_000;
const SOURCES_MAX: usize = 64;
const SOURCE_DEPTH_MAX: usize = 16;

/// A place in a file, for errors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) file: Rc<str>,
    pub(super) line: u32,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Word(Box<str>),
    /// One of `{ } [ ] , =`.
    Sign(char),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// The tokens of `name` and of the files that it includes, each with its place.
pub(super) fn tokens(files: &dyn Files, name: &str) -> Result<Vec<(Token, At)>, ImportError> {
    let mut reader = Reader {
        files,
        chain: Vec::new(),
        sources: 0,
        tokens: Vec::new(),
    };
    reader.read(name, None)?;
    Ok(reader.tokens)
}

/// The text of a file.
pub(super) fn text(
    files: &dyn Files,
    name: &str,
    asked: Option<&At>,
) -> Result<String, ImportError> {
    let place = asked.map_or_else(|| name.to_owned(), ToString::to_string);
    let bytes = files
        .read(name, FILE_BYTES_MAX)
        .map_err(|problem| ImportError::new(&place, format!("cannot read `{name}`: {problem}")))?;
    if bytes.len() > FILE_BYTES_MAX {
        let problem = format!("`{name}` is longer than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(ImportError::new(&place, problem));
    }
    String::from_utf8(bytes)
        .map_err(|_| ImportError::new(&place, format!("`{name}` is not a text in UTF-8")))
}

struct Reader<'a> {
    files: &'a dyn Files,
    /// The files that are being read, each included by the one before.
    chain: Vec<Rc<str>>,
    sources: usize,
    tokens: Vec<(Token, At)>,
}

impl Reader<'_> {
    fn read(&mut self, name: &str, asked: Option<&At>) -> Result<(), ImportError> {
        let place = asked.map_or_else(|| name.to_owned(), ToString::to_string);
        if let Some(from) = self.chain.iter().position(|open| **open == *name) {
            let mut circle: Vec<&str> = self.chain[from..].iter().map(|name| &**name).collect();
            circle.push(name);
            let problem = format!(
                "files include each other in a circle: {}; remove one `source`",
                circle.join(" -> ")
            );
            return Err(ImportError::new(&place, problem));
        }
        self.sources += 1;
        if self.chain.len() >= SOURCE_DEPTH_MAX || self.sources > SOURCES_MAX {
            let problem = format!(
                "more than {SOURCE_DEPTH_MAX} files include each other, or more than {SOURCES_MAX} are included"
            );
            return Err(ImportError::new(&place, problem));
        }
        let text = text(self.files, name, asked)?;
        let file: Rc<str> = name.into();
        self.chain.push(Rc::clone(&file));
        let mut includes = false;
        for (line, content) in (1..).zip(text.lines()) {
            let at = At {
                file: Rc::clone(&file),
                line,
            };
            for token in Words(content) {
                let token = token.map_err(|sign| {
                    ImportError::new(&at, format!("`{sign}` has no meaning here; remove it"))
                })?;
                match &token {
                    Token::Word(word) if includes => {
                        includes = false;
                        self.read(&word.clone(), Some(&at))?;
                        continue;
                    }
                    Token::Sign(_) if includes => {
                        let problem = format!("{token} follows `source`, and not a file's name");
                        return Err(ImportError::new(&at, problem));
                    }
                    Token::Word(word) if &**word == "source" => {
                        includes = true;
                        continue;
                    }
                    _ => {}
                }
                if self.tokens.len() >= TOKENS_MAX {
                    let problem = format!("the files have more than {TOKENS_MAX} words");
                    return Err(ImportError::new(&at, problem));
                }
                self.tokens.push((token, at.clone()));
            }
        }
        if includes {
            let problem = "the file ends after `source`; name a file".to_owned();
            return Err(ImportError::new(name, problem));
        }
        self.chain.pop();
        Ok(())
    }
}

/// The tokens of a line up to its comment; an error is a sign that none of them may contain.
struct Words<'a>(&'a str);

impl Iterator for Words<'_> {
    type Item = Result<Token, char>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_blank = |c: char| c.is_whitespace() || c == '\0';
        let is_sign = |c: char| ";{},[]:?=".contains(c);
        let line = self.0.trim_start_matches(is_blank);
        let first = line.chars().next().filter(|first| *first != '#')?;
        if is_sign(first) {
            self.0 = &line[first.len_utf8()..];
            return Some(if ";:?".contains(first) {
                Err(first)
            } else {
                Ok(Token::Sign(first))
            });
        }
        let length = line
            .find(|c: char| is_blank(c) || is_sign(c))
            .unwrap_or(line.len());
        self.0 = &line[length..];
        Some(Ok(Token::Word(line[..length].into())))
    }
}
