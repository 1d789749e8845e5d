//! The modules of a crate, as its `mod` items declare them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module and the file that holds it. An inline module shares the file of its parent.
pub(crate) struct Module {
    /// Its place among the modules of the crate; the crate itself is 0.
    pub(crate) id: usize,
    /// The module that declares it.
    pub(crate) parent: Option<usize>,
    /// The path from the crate's root, such as `front::client`; empty for the crate itself.
    pub(crate) path: String,
    /// The file, from the root of the repository.
    pub(crate) file: PathBuf,
    /// Its child modules by name.
    pub(crate) children: BTreeMap<String, usize>,
    /// The names that it exports and does not define, each with the path that it gives.
    pub(crate) re_exports: Vec<(String, Vec<String>)>,
    /// Names that only it and the modules within it see.
    pub(crate) uses: Vec<(String, Vec<String>)>,
    /// Its items, but for child modules and `use`.
    pub(crate) items: Vec<syn::Item>,
}

/// All modules of a crate.
pub(crate) struct Crate {
    /// Its modules; the first one is the crate itself.
    pub(crate) modules: Vec<Module>,
    with_tests: bool,
}

impl Crate {
    /// Reads the crate whose root is this file, without what only tests compile.
    ///
    /// # Errors
    /// A file that is missing or is no Rust, named.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        Self::read_all(root, false)
    }

    /// As `read`, with the parts that only tests compile.
    ///
    /// # Errors
    /// A file that is missing or is no Rust, named.
    pub(crate) fn read_with_tests(root: &Path) -> Result<Self, String> {
        Self::read_all(root, true)
    }

    fn read_all(root: &Path, with_tests: bool) -> Result<Self, String> {
        let mut all = Self {
            modules: Vec::new(),
            with_tests,
        };
        let items = items_of(root)?;
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        all.add(None, String::new(), root.to_owned(), &folder, items)?;
        Ok(all)
    }

    /// Adds a module and all below it. `folder` is where the files of its children lie.
    fn add(
        &mut self,
        parent: Option<usize>,
        path: String,
        file: PathBuf,
        folder: &Path,
        items: Vec<syn::Item>,
    ) -> Result<usize, String> {
        let id = self.modules.len();
        let (declared, items): (Vec<_>, Vec<_>) = items
            .into_iter()
            .partition(|item| matches!(item, syn::Item::Mod(_)));
        let mut re_exports = Vec::new();
        let mut uses = Vec::new();
        let mut others = Vec::new();
        for item in items {
            match item {
                syn::Item::Use(item) if is_for_tests(&item.attrs) && !self.with_tests => {}
                syn::Item::Use(item) => match item.vis {
                    syn::Visibility::Inherited => flat(&item.tree, &[], &mut uses),
                    _ => flat(&item.tree, &[], &mut re_exports),
                },
                other => others.push(other),
            }
        }
        self.modules.push(Module {
            id,
            parent,
            path: path.clone(),
            file: file.clone(),
            children: BTreeMap::new(),
            re_exports,
            uses,
            items: others,
        });
        for item in declared {
            let syn::Item::Mod(item) = item else { continue };
            if is_for_tests(&item.attrs) && !self.with_tests {
                continue;
            }
            let name = item.ident.to_string();
            let below = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}::{name}")
            };
            let child = match item.content {
                Some((_, items)) => {
                    let folder = match path_of(&item.attrs) {
                        Some(path) => file.with_file_name(path),
                        None => folder.join(&name),
                    };
                    self.add(Some(id), below, file.clone(), &folder, items)?
                }
                None => {
                    let (found, folder) = file_of(&item.attrs, &name, &file, folder)?;
                    let items = items_of(&found)?;
                    self.add(Some(id), below, found, &folder, items)?
                }
            };
            self.modules[id].children.insert(name, child);
        }
        Ok(id)
    }

    /// The module that defines what a path names, seen from `from`: `use` items are followed. None if the
    /// path leaves the crate or names nothing of a module.
    pub(crate) fn find(&self, from: usize, segments: &[String]) -> Option<usize> {
        self.follow(from, segments, &mut BTreeSet::new())
    }

    /// Follows a path. Globs may name each other in a loop, so a path that was followed is not followed
    /// again.
    fn follow(
        &self,
        from: usize,
        segments: &[String],
        followed: &mut BTreeSet<(usize, Vec<String>)>,
    ) -> Option<usize> {
        if !followed.insert((from, segments.to_vec())) {
            return None;
        }
        let (at, used) = self.walk(from, segments)?;
        let rest = &segments[used..];
        let Some(name) = rest.first() else {
            return Some(at);
        };
        let module = &self.modules[at];
        let private = self.is_within(from, at).then_some(&module.uses);
        let brought = module
            .re_exports
            .iter()
            .chain(private.into_iter().flatten());
        for (known_as, path) in brought {
            let is_glob = known_as.is_empty();
            let left = match is_glob {
                // A definition goes before a glob import.
                true if module.defines(name) => continue,
                true => rest,
                false if known_as == name => &rest[1..],
                false => continue,
            };
            let whole = [path, left].concat();
            if let Some(found) = self.follow(at, &whole, followed)
                && (!is_glob || found != at && self.modules[found].defines(name))
            {
                return Some(found);
            }
        }
        Some(at)
    }

    /// True if a module is another one or lies within it.
    pub(crate) fn is_within(&self, module: usize, other: usize) -> bool {
        let mut at = Some(module);
        while let Some(id) = at {
            if id == other {
                return true;
            }
            at = self.modules[id].parent;
        }
        false
    }

    /// The module that the first segments of a path lead to, and how many they are.
    fn walk(&self, from: usize, segments: &[String]) -> Option<(usize, usize)> {
        let mut at = from;
        let mut used = 0;
        for segment in segments {
            at = match segment.as_str() {
                "crate" if used == 0 => 0,
                "self" if used == 0 => at,
                "super" => self.modules[at].parent?,
                name => match self.modules[at].children.get(name) {
                    Some(child) => *child,
                    None => break,
                },
            };
            used += 1;
        }
        (used > 0).then_some((at, used))
    }

    /// True if the path names a module itself.
    pub(crate) fn module(&self, from: usize, segments: &[String]) -> Option<usize> {
        let (at, used) = self.walk(from, segments)?;
        (used == segments.len()).then_some(at)
    }
}

impl Module {
    fn defines(&self, name: &str) -> bool {
        self.items
            .iter()
            .any(|item| defined(item).is_some_and(|defined| defined == name))
    }
}

fn defined(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// The paths of a `use`, each with the name that it brings; the name of a glob is empty.
pub(crate) fn flat(tree: &syn::UseTree, prefix: &[String], out: &mut Vec<(String, Vec<String>)>) {
    let with = |name: &syn::Ident| {
        let mut path = prefix.to_vec();
        path.push(name.to_string());
        path
    };
    match tree {
        syn::UseTree::Path(path) => flat(&path.tree, &with(&path.ident), out),
        syn::UseTree::Name(name) if name.ident == "self" => {
            out.push((prefix.last().cloned().unwrap_or_default(), prefix.to_vec()));
        }
        syn::UseTree::Name(name) => out.push((name.ident.to_string(), with(&name.ident))),
        syn::UseTree::Rename(name) if name.ident == "self" => {
            out.push((name.rename.to_string(), prefix.to_vec()))
        }
        syn::UseTree::Rename(name) => out.push((name.rename.to_string(), with(&name.ident))),
        syn::UseTree::Glob(_) => out.push((String::new(), prefix.to_vec())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flat(tree, prefix, out)),
    }
}

/// True for what `cfg(test)` or a test attribute is on.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute.path().is_ident("test");
        let condition = attribute
            .path()
            .is_ident("cfg")
            .then(|| attribute.parse_args::<syn::Path>().ok())
            .flatten();
        is_test || condition.is_some_and(|path| path.is_ident("test"))
    })
}

fn items_of(file: &Path) -> Result<Vec<syn::Item>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(parsed.items)
}

/// The value of a `path` attribute.
fn path_of(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("path")
            && let syn::Expr::Lit(literal) = &pair.value
            && let syn::Lit::Str(text) = &literal.lit
        {
            Some(text.value())
        } else {
            None
        }
    })
}

/// The file of a module, and the folder where the files of its children lie.
fn file_of(
    attributes: &[syn::Attribute],
    name: &str,
    declared_in: &Path,
    folder: &Path,
) -> Result<(PathBuf, PathBuf), String> {
    if let Some(path) = path_of(attributes) {
        let file = declared_in.with_file_name(path);
        let folder = file.with_file_name("");
        return Ok((file, folder));
    }
    let candidates = [
        folder.join(format!("{name}.rs")),
        folder.join(name).join("mod.rs"),
    ];
    let found = candidates.into_iter().find(|file| file.exists());
    found
        .map(|file| (file, folder.join(name)))
        .ok_or_else(|| format!("{}: module {name} has no file", declared_in.display()))
}
