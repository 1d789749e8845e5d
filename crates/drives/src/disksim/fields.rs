//! Typed parameters of a block, with errors that name file, line and parameter.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::ImportError;
use super::lexer::At;
use super::tree::{Block, Tree, Value};

/// A block whose parameters are being read.
pub(super) struct Fields<'a> {
    tree: &'a Tree,
    block: Rc<Block>,
    /// The parameters that were asked for.
    known: RefCell<BTreeSet<&'static str>>,
}

/// Milliseconds to nanoseconds, for values that were checked to be in range.
pub(super) fn nanos(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

impl<'a> Fields<'a> {
    pub(super) fn new(tree: &'a Tree, block: &Rc<Block>) -> Self {
        Self {
            tree,
            block: Rc::clone(block),
            known: RefCell::default(),
        }
    }

    /// An error about this block as a whole.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> ImportError {
        ImportError::new(&self.block.at, problem.into())
    }

    /// An error about a parameter.
    pub(super) fn wrong_at(
        &self,
        key: &'static str,
        problem: impl std::fmt::Display,
    ) -> ImportError {
        let at = self
            .block
            .parameters
            .get(key)
            .map_or(&self.block.at, |(_, at)| at);
        ImportError::new(at, format!("`{key}`: {problem}"))
    }

    fn get(&self, key: &'static str) -> Option<&(Value, At)> {
        self.known.borrow_mut().insert(key);
        self.block.parameters.get(key)
    }

    fn required<T>(&self, key: &'static str, value: Option<T>) -> Result<T, ImportError> {
        value.ok_or_else(|| {
            let Block { kind, name, .. } = &*self.block;
            self.wrong(format!("`{key}` is missing in {kind} {name}; set it"))
        })
    }

    /// Parameters in the file that nobody asked for.
    pub(super) fn unknown(&self) -> Vec<String> {
        let known = self.known.borrow();
        let parameters = self.block.parameters.iter();
        parameters
            .filter(|(key, _)| !known.contains(&***key))
            .map(|(key, (_, at))| {
                format!("{at}: `{key}` is not a parameter of {}", self.block.kind)
            })
            .collect()
    }

    /// States that these parameters change nothing here, whatever they are.
    pub(super) fn without_effect(&self, keys: &[&'static str]) {
        self.known.borrow_mut().extend(keys);
    }

    pub(super) fn is_set(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn word(&self, key: &'static str) -> Result<Option<&str>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some((Value::Word(word), _)) => Ok(Some(word)),
            Some(_) => Err(self.wrong_at(key, "is a list or a block, and should be a word")),
        }
    }

    /// A number between `min` and `max`, if it is set.
    pub(super) fn float_if(
        &self,
        key: &'static str,
        min: f64,
        max: f64,
    ) -> Result<Option<f64>, ImportError> {
        let Some(word) = self.word(key)? else {
            return Ok(None);
        };
        let number =
            float(word).ok_or_else(|| self.wrong_at(key, format!("`{word}` is not a number")))?;
        if !(min..=max).contains(&number) {
            let problem = format!("{number} is not between {min} and {max}");
            return Err(self.wrong_at(key, problem));
        }
        Ok(Some(number))
    }

    pub(super) fn float(&self, key: &'static str, min: f64, max: f64) -> Result<f64, ImportError> {
        let number = self.float_if(key, min, max)?;
        self.required(key, number)
    }

    /// A time in milliseconds that is not negative, in nanoseconds.
    pub(super) fn time(&self, key: &'static str) -> Result<u64, ImportError> {
        Ok(nanos(self.float(key, 0.0, MILLIS_MAX)?) as u64)
    }

    pub(super) fn integer_if(
        &self,
        key: &'static str,
        min: i64,
        max: i64,
    ) -> Result<Option<i64>, ImportError> {
        let Some(word) = self.word(key)? else {
            return Ok(None);
        };
        let number = integer(word)
            .ok_or_else(|| self.wrong_at(key, format!("`{word}` is not a whole number")))?;
        if !(min..=max).contains(&number) {
            let problem = format!("{number} is not between {min} and {max}");
            return Err(self.wrong_at(key, problem));
        }
        Ok(Some(number))
    }

    pub(super) fn integer(
        &self,
        key: &'static str,
        min: i64,
        max: i64,
    ) -> Result<i64, ImportError> {
        let number = self.integer_if(key, min, max)?;
        self.required(key, number)
    }

    pub(super) fn count(&self, key: &'static str, min: u64, max: u64) -> Result<u64, ImportError> {
        Ok(self.integer(key, min as i64, max as i64)? as u64)
    }

    /// 0 or 1.
    pub(super) fn is(&self, key: &'static str) -> Result<bool, ImportError> {
        Ok(self.integer(key, 0, 1)? == 1)
    }

    /// A block, or the name of one.
    pub(super) fn block(&self, key: &'static str) -> Result<Fields<'a>, ImportError> {
        let block = match self.required(key, self.get(key))? {
            (Value::Block(block), _) => Rc::clone(block),
            (Value::Word(name), _) => {
                let block = self.tree.block(name);
                Rc::clone(
                    block
                        .ok_or_else(|| self.wrong_at(key, format!("there is no block `{name}`")))?,
                )
            }
            _ => return Err(self.wrong_at(key, "is not a block")),
        };
        Ok(Fields::new(self.tree, &block))
    }

    pub(super) fn list_if(&self, key: &'static str) -> Result<Option<&[(Value, At)]>, ImportError> {
        match self.get(key) {
            None => Ok(None),
            Some((Value::List(list), _)) => Ok(Some(list)),
            Some(_) => Err(self.wrong_at(key, "is not a list `[ ... ]`")),
        }
    }

    pub(super) fn list(&self, key: &'static str) -> Result<&[(Value, At)], ImportError> {
        let list = self.list_if(key)?;
        self.required(key, list)
    }

    /// A list of blocks.
    pub(super) fn blocks(&self, key: &'static str) -> Result<Vec<Fields<'a>>, ImportError> {
        let blocks = self.list(key)?.iter().map(|(value, at)| match value {
            Value::Block(block) => Ok(Fields::new(self.tree, block)),
            _ => Err(ImportError::new(
                at,
                format!("`{key}` holds something else than blocks"),
            )),
        });
        blocks.collect()
    }

    /// A list of whole numbers that are not negative, and less than `bound`.
    pub(super) fn integers(&self, key: &'static str, bound: u64) -> Result<Vec<u64>, ImportError> {
        let wrong = |at: &At| {
            ImportError::new(
                at,
                format!("`{key}` holds something else than numbers from 0 to {bound}"),
            )
        };
        let numbers = self.list(key)?.iter().map(|(value, at)| match value {
            Value::Word(word) => integer(word)
                .and_then(|number| u64::try_from(number).ok())
                .filter(|number| *number < bound)
                .ok_or_else(|| wrong(at)),
            _ => Err(wrong(at)),
        });
        numbers.collect()
    }

    pub(super) fn kind(&self) -> &str {
        &self.block.kind
    }

    pub(super) fn name(&self) -> &str {
        &self.block.name
    }
}

/// Longest time in a file: no drive takes so long for anything.
pub(super) const MILLIS_MAX: f64 = 100_000.0;

/// A whole number, decimal or hexadecimal. Some files write them with a fraction of zeros.
pub(super) fn integer(word: &str) -> Option<i64> {
    let (sign, digits) = word
        .strip_prefix('-')
        .map_or((1, word), |digits| (-1, digits));
    if let Some(digits) = digits.strip_prefix("0x") {
        return Some(sign * i64::from_str_radix(digits, 16).ok().filter(|n| *n >= 0)?);
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !fraction.bytes().all(|byte| byte == b'0') {
        return None;
    }
    Some(sign * whole.parse::<i64>().ok()?)
}

/// A number that is finite.
pub(super) fn float(word: &str) -> Option<f64> {
    let is_number = word
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if !is_number {
        return integer(word).map(|number| number as f64);
    }
    word.parse().ok().filter(|number: &f64| number.is_finite())
}
