//! Sizes of files and functions.

use std::path::Path;

use syn::visit::{self, Visit};

use crate::modules::is_for_tests;

/// Functions of more lines than this are counted.
pub(crate) const LONG_LINES: usize = 70;

/// Counts over a set of source files.
#[derive(Default)]
pub(crate) struct Sizes {
    /// The lines of each file.
    pub(crate) files: Vec<usize>,
    /// Number of functions, without tests.
    pub(crate) functions: usize,
    /// Those of more than [`LONG_LINES`] lines.
    pub(crate) long: usize,
}

impl Sizes {
    /// Counts a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no Rust.
    pub(crate) fn add(&mut self, file: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        self.files.push(text.lines().count());
        Counter(self).visit_file(&parsed);
        Ok(())
    }

    /// The lines of the file in the middle.
    pub(crate) fn median_lines(&self) -> usize {
        let mut lines = self.files.clone();
        lines.sort_unstable();
        lines.get(lines.len() / 2).copied().unwrap_or(0)
    }
}

struct Counter<'a>(&'a mut Sizes);

impl Counter<'_> {
    fn count(&mut self, name: &syn::Ident, body: &syn::Block) {
        self.0.functions += 1;
        let end = body.brace_token.span.close().end();
        let lines = end.line - name.span().start().line + 1;
        if lines > LONG_LINES {
            self.0.long += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Counter<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.count(&item.sig.ident, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.count(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}
