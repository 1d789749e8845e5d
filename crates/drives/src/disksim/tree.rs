//! The structure of DiskSim's parameter files: blocks of parameters, instances, and the topology.
//!
//! ```text
//! TYPE NAME { key words = value, [ key words, others ] = value }      a block
//! instantiate [ name, first .. last ] as BLOCK                       instances
//! topology TYPE name [ TYPE name [ ... ] ]                           what is attached to what
//! ```
//!
//! A value is a word, a list `[ a, b ]`, a block without a name, or a block. The type of a block may be the
//! name of an earlier block, whose parameters it then has where it sets none.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::ImportError;
use super::lexer::{At, Token};

/// Blocks and lists within each other.
const DEPTH_MAX: usize = 32;
/// Names that a range `a0 .. a9` may stand for.
const RANGE_MAX: u64 = 10_000;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Word(Box<str>),
    List(Vec<(Value, At)>),
    Block(Rc<Block>),
    Part(Part),
}

/// A block: its type, and its parameters by name.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) kind: Box<str>,
    pub(super) name: Box<str>,
    pub(super) at: At,
    pub(super) parameters: BTreeMap<Box<str>, (Value, At)>,
}

/// A component of the topology with what is attached to it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) kind: Box<str>,
    pub(super) name: Box<str>,
    pub(super) below: Vec<Part>,
}

/// The content of a file and of those that it includes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// Named blocks in their order, also those inside other blocks.
    pub(super) blocks: Vec<Rc<Block>>,
    /// The block of which each instance is one, in their order.
    pub(super) instances: Vec<(Box<str>, Box<str>)>,
    pub(super) topology: Vec<Part>,
    /// Remarks for people.
    pub(super) notes: Vec<String>,
}

impl Tree {
    pub(super) fn block(&self, name: &str) -> Option<&Rc<Block>> {
        self.blocks.iter().find(|block| *block.name == *name)
    }

    /// The block of an instance.
    pub(super) fn instance(&self, name: &str) -> Option<&Rc<Block>> {
        let of = self
            .instances
            .iter()
            .find(|(instance, _)| **instance == *name);
        self.block(of.map_or(name, |(_, block)| block))
    }
}

/// Reads the structure of `tokens`.
pub(super) fn parse(tokens: &[(Token, At)], file: &str) -> Result<Tree, ImportError> {
    let mut parser = Parser {
        tokens,
        next: 0,
        file,
        tree: Tree::default(),
    };
    while let Some((token, at)) = parser.peek() {
        match token {
            Token::Word(word) if &**word == "instantiate" => parser.instantiate()?,
            Token::Word(word) if &**word == "topology" => {
                parser.next += 1;
                let kind = parser.word("a component's type")?;
                let name = parser.word("a component's name")?;
                let part = parser.part(kind, name, 0)?;
                parser.tree.topology.push(part);
            }
            Token::Word(_) => {
                let kind = parser.word("a block's type")?;
                let name = parser.word("a block's name")?;
                parser.block(kind, name, at.clone(), 0)?;
            }
            Token::Sign(_) => return Err(parser.unexpected("a block, `instantiate` or `topology`")),
        }
    }
    Ok(parser.tree)
}

struct Parser<'a> {
    tokens: &'a [(Token, At)],
    next: usize,
    file: &'a str,
    tree: Tree,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a (Token, At)> {
        self.tokens.get(self.next)
    }

    fn is_sign(&self, sign: char) -> bool {
        matches!(self.peek(), Some((Token::Sign(found), _)) if *found == sign)
    }

    fn unexpected(&self, expected: &str) -> ImportError {
        match self.peek() {
            Some((token, at)) => {
                ImportError::new(at, format!("{token} is where {expected} is expected"))
            }
            None => ImportError::new(
                self.file,
                format!("the file ends where {expected} is expected"),
            ),
        }
    }

    fn at(&self) -> At {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.next.min(last)).map_or_else(
            || At {
                file: self.file.into(),
                line: 1,
            },
            |(_, at)| at.clone(),
        )
    }

    fn sign(&mut self, sign: char) -> Result<(), ImportError> {
        if !self.is_sign(sign) {
            return Err(self.unexpected(&format!("`{sign}`")));
        }
        self.next += 1;
        Ok(())
    }

    fn word(&mut self, expected: &str) -> Result<Box<str>, ImportError> {
        let Some((Token::Word(word), _)) = self.peek() else {
            return Err(self.unexpected(expected));
        };
        self.next += 1;
        Ok(word.clone())
    }

    fn deeper(&self, depth: usize) -> Result<usize, ImportError> {
        if depth >= DEPTH_MAX {
            let problem = format!("blocks and lists are more than {DEPTH_MAX} levels deep");
            return Err(ImportError::new(self.at(), problem));
        }
        Ok(depth + 1)
    }

    /// The parameters of a named block, which later blocks may have as their type.
    fn block(
        &mut self,
        kind: Box<str>,
        name: Box<str>,
        at: At,
        depth: usize,
    ) -> Result<Rc<Block>, ImportError> {
        let mut block = self.parameters(kind, name, at, depth)?;
        if let Some(general) = self.tree.block(&block.kind).cloned() {
            block.kind = general.kind.clone();
            for (key, value) in &general.parameters {
                let entry = block.parameters.entry(key.clone());
                entry.or_insert_with(|| value.clone());
            }
        }
        let block = Rc::new(block);
        match self.tree.block(&block.name) {
            None => self.tree.blocks.push(Rc::clone(&block)),
            Some(first) => self.tree.notes.push(format!(
                "{}: there is a block `{}` in {} already, which counts",
                block.at, block.name, first.at
            )),
        }
        Ok(block)
    }

    fn parameters(
        &mut self,
        kind: Box<str>,
        name: Box<str>,
        at: At,
        depth: usize,
    ) -> Result<Block, ImportError> {
        let depth = self.deeper(depth)?;
        self.sign('{')?;
        let mut parameters = BTreeMap::new();
        while !self.is_sign('}') {
            let at = self.at();
            let keys = self.keys()?;
            self.sign('=')?;
            let value = self.value(depth)?;
            for key in keys {
                if parameters.contains_key(&key) {
                    let note = format!("{at}: `{key}` is set twice; the last value counts");
                    self.tree.notes.push(note);
                }
                parameters.insert(key, (value.clone(), at.clone()));
            }
            if !self.is_sign('}') {
                self.sign(',')?;
            }
        }
        self.next += 1;
        Ok(Block {
            kind,
            name,
            at,
            parameters,
        })
    }

    /// The name of a parameter, or a list of names that get the same value.
    fn keys(&mut self) -> Result<Vec<Box<str>>, ImportError> {
        let several = self.is_sign('[');
        self.next += usize::from(several);
        let mut keys = Vec::new();
        loop {
            let mut key = self.word("a parameter's name")?.into_string();
            while let Some((Token::Word(word), _)) = self.peek() {
                key.push(' ');
                key.push_str(word);
                self.next += 1;
            }
            keys.push(key.into_boxed_str());
            if !several {
                return Ok(keys);
            }
            if self.is_sign(']') {
                self.next += 1;
                return Ok(keys);
            }
            self.sign(',')?;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, ImportError> {
        let at = self.at();
        if self.is_sign('[') {
            return Ok(Value::List(self.list(depth)?));
        }
        let word = self.word("a value")?;
        if self.is_sign('{') {
            let block = self.parameters(word, "".into(), at, depth)?;
            return Ok(Value::Block(Rc::new(block)));
        }
        let Some((Token::Word(name), _)) = self.peek() else {
            return Ok(Value::Word(word));
        };
        if &**name == ".." {
            return Ok(Value::Word(word));
        }
        self.next += 1;
        if self.is_sign('[') {
            return Ok(Value::Part(self.part(word, name.clone(), depth)?));
        }
        let block = self.block(word, name.clone(), at, depth)?;
        Ok(Value::Block(block))
    }

    fn list(&mut self, depth: usize) -> Result<Vec<(Value, At)>, ImportError> {
        let depth = self.deeper(depth)?;
        self.sign('[')?;
        let mut values = Vec::new();
        while !self.is_sign(']') {
            let at = self.at();
            let value = self.value(depth)?;
            if matches!(self.peek(), Some((Token::Word(word), _)) if &**word == "..") {
                self.next += 1;
                let last = self.word("the last name of a range")?;
                for name in range(&value, &last, &at)? {
                    values.push((Value::Word(name), at.clone()));
                }
            } else {
                values.push((value, at));
            }
            if !self.is_sign(']') {
                self.sign(',')?;
            }
        }
        self.next += 1;
        Ok(values)
    }

    fn part(&mut self, kind: Box<str>, name: Box<str>, depth: usize) -> Result<Part, ImportError> {
        let below = self.list(depth)?;
        let below = below.into_iter().map(|(value, at)| match value {
            Value::Part(part) => Ok(part),
            _ => Err(ImportError::new(
                at,
                format!("the list of what is attached to `{name}` has something else than `TYPE name [...]`"),
            )),
        });
        let below = below.collect::<Result<_, _>>()?;
        Ok(Part { kind, name, below })
    }

    fn instantiate(&mut self) -> Result<(), ImportError> {
        self.next += 1;
        let names = self.list(0)?;
        if !matches!(self.peek(), Some((Token::Word(word), _)) if &**word == "as") {
            return Err(self.unexpected("`as`"));
        }
        self.next += 1;
        let block = self.word("a block's name")?;
        for (name, at) in names {
            let Value::Word(name) = name else {
                let problem = "a list of instances has something else than names".to_owned();
                return Err(ImportError::new(at, problem));
            };
            self.tree.instances.push((name, block.clone()));
        }
        Ok(())
    }
}

/// Names from `first` to `last`, which differ in the number at their end.
fn range(first: &Value, last: &str, at: &At) -> Result<Vec<Box<str>>, ImportError> {
    let wrong = || {
        ImportError::new(
            at,
            format!(
                "a range goes from a name to the same name with a greater number, not to `{last}`"
            ),
        )
    };
    let Value::Word(first) = first else {
        return Err(wrong());
    };
    let split = |name: &str| -> Option<(String, u64)> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        Some((stem.to_owned(), name[stem.len()..].parse().ok()?))
    };
    let ((stem, from), (other, to)) = split(first).zip(split(last)).ok_or_else(wrong)?;
    if stem != other || from > to || to - from >= RANGE_MAX {
        return Err(wrong());
    }
    Ok((from..=to)
        .map(|number| format!("{stem}{number}").into_boxed_str())
        .collect())
}
