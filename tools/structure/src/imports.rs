//! Imports between files. An import is a path in a `use`, an expression, a type, or the arguments of a
//! macro or attribute that leads to another module of the same crate. `use` items are followed to the definition.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use syn::Token;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use crate::modules::{Crate, Module, flat, is_for_tests};

/// For each file the files that it imports.
pub(crate) type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The options of serde whose values are paths in a text.
const SERDE_PATHS: [&str; 5] = [
    "with",
    "serialize_with",
    "deserialize_with",
    "default",
    "remote",
];

/// An import of one module by another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Import {
    /// The module that names the other one.
    pub(crate) from: String,
    /// The module that is named.
    pub(crate) to: String,
    /// The file that holds the import.
    pub(crate) file: PathBuf,
    /// The file of the module that is named.
    pub(crate) named: PathBuf,
    /// Imported names.
    pub(crate) names: Vec<String>,
}

/// All imports between modules of a crate.
pub(crate) fn of(all: &Crate) -> BTreeSet<Import> {
    let mut found = BTreeSet::new();
    for module in &all.modules {
        let mut reader = Reader {
            all,
            module,
            aliases: aliases(all, module),
            targets: BTreeMap::new(),
        };
        for (_, path) in &module.uses {
            reader.note(path);
        }
        for (_, path) in &module.re_exports {
            // A re-export of a module's own parts imports nothing.
            if all
                .find(module.id, path)
                .is_some_and(|target| !all.is_within(target, module.id))
            {
                reader.note(path);
            }
        }
        for item in &module.items {
            reader.visit_item(item);
        }
        for (target, names) in reader.targets {
            let named = &all.modules[target];
            if !all.is_within(module.id, target) {
                found.insert(Import {
                    from: module.path.clone(),
                    to: named.path.clone(),
                    file: module.file.clone(),
                    named: named.file.clone(),
                    names: names.into_iter().collect(),
                });
            }
        }
    }
    found
}

/// Imports between files.
pub(crate) fn between_files(imports: &BTreeSet<Import>) -> Imports {
    let mut files = Imports::new();
    for import in imports.iter().filter(|import| import.file != import.named) {
        files
            .entry(import.file.clone())
            .or_default()
            .insert(import.named.clone());
    }
    files
}

/// The modules that a module's `use` items give a name.
fn aliases(all: &Crate, module: &Module) -> BTreeMap<String, usize> {
    let brought = module.uses.iter().chain(&module.re_exports);
    brought
        .filter_map(|(name, path)| Some((name.clone(), all.module(module.id, path)?)))
        .collect()
}

struct Reader<'a> {
    all: &'a Crate,
    module: &'a Module,
    aliases: BTreeMap<String, usize>,
    targets: BTreeMap<usize, BTreeSet<String>>,
}

impl Reader<'_> {
    fn note(&mut self, path: &[String]) {
        let Some(first) = path.first() else { return };
        let found = match self.aliases.get(first) {
            Some(alias) if path.len() > 1 => {
                let path: Vec<String> = std::iter::once("self")
                    .chain(path[1..].iter().map(String::as_str))
                    .map(str::to_owned)
                    .collect();
                self.all.find(*alias, &path)
            }
            _ => self.all.find(self.module.id, path),
        };
        if let (Some(found), Some(name)) = (found, path.last()) {
            self.targets.entry(found).or_default().insert(name.clone());
        }
    }

    fn note_serde(&mut self, options: &syn::MetaList) {
        let options = options.parse_args_with(Punctuated::<syn::Meta, Token![,]>::parse_terminated);
        for option in options.into_iter().flatten() {
            if let syn::Meta::NameValue(option) = option
                && SERDE_PATHS.iter().any(|name| option.path.is_ident(name))
                && let syn::Expr::Lit(value) = option.value
                && let syn::Lit::Str(text) = value.lit
                && let Ok(path) = text.parse::<syn::Path>()
            {
                self.visit_path(&path);
            }
        }
    }

    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1
                }
                TokenTree::Ident(name) if colons == 2 || path.is_empty() => {
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.note_if_long(&mut path);
                    colons = 0;
                    match other {
                        TokenTree::Group(group) => self.note_tokens(group.stream()),
                        TokenTree::Ident(name) => path.push(name.to_string()),
                        _ => {}
                    }
                }
            }
        }
        self.note_if_long(&mut path);
    }

    fn note_if_long(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.note(path);
        }
        path.clear();
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        flat(&item.tree, &[], &mut paths);
        for (_, path) in paths {
            self.note(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let segments: Vec<String> = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect();
            self.note(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(super)` imports nothing.
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(arguments) = &attribute.meta {
            if arguments.path.is_ident("serde") {
                self.note_serde(arguments);
            }
            self.note_tokens(arguments.tokens.clone());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.note_tokens(call.tokens.clone());
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        _ => &[],
    }
}
