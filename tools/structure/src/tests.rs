//! The checks on small crates that break one rule each.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::sizes::LONG_LINES;

/// A folder with these files.
fn folder_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
        fs::write(file, text).expect("a file");
    }
    folder
}

/// A crate in a folder of its own, from files and their texts.
fn crate_of(files: &[(&str, &str)]) -> (tempfile::TempDir, BTreeSet<Import>) {
    let folder = folder_of(files);
    let read = Crate::read(&folder.path().join("lib.rs")).expect("a crate");
    let imports = imports::of(&read);
    (folder, imports)
}

/// Imports between modules.
fn pairs(imports: &BTreeSet<Import>) -> Vec<(&str, &str)> {
    imports
        .iter()
        .map(|import| (import.from.as_str(), import.to.as_str()))
        .collect()
}

fn circles(imports: &BTreeSet<Import>) -> Vec<Vec<String>> {
    let name = |file: &PathBuf| {
        file.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    circles::of(&between_files(imports))
        .iter()
        .map(|circle| circle.iter().map(name).collect())
        .collect()
}

#[test]
fn a_loop_over_a_re_export_is_a_circle() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::Door; pub struct A(Door);"),
        ("b/mod.rs", "mod door; pub use door::Door;"),
        (
            "b/door.rs",
            "pub struct Door; fn f() { format!(\"{}\", crate::c::value()); }",
        ),
        ("c.rs", "pub fn value() -> u8 { let _: crate::a::A; 1 }"),
    ]);
    assert_eq!(circles(&imports), [["a.rs", "door.rs", "c.rs"]]);
}

#[test]
fn a_child_that_uses_its_parent_is_no_circle() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod a;"),
        (
            "a.rs",
            "mod child; use child::Part; pub struct Whole(Part);",
        ),
        (
            "a/child.rs",
            "use super::Whole; pub struct Part; fn f(_: &Whole) {}",
        ),
    ]);
    assert!(circles(&imports).is_empty(), "{imports:?}");
}

#[test]
fn import_by_tests_alone_is_not_counted() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
        ),
        ("b.rs", "pub struct B; #[cfg(test)] use crate::a::A;"),
    ]);
    assert!(imports.is_empty(), "{imports:?}");
}

#[test]
fn a_module_keeps_to_its_layer() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod base; mod top;"),
        ("base.rs", "fn f() { crate::top::g(); }"),
        ("top.rs", "pub fn g() {}"),
    ]);
    let layers = |table: &str| -> Layers {
        toml::from_str(&format!(
            "circle_files_max = 8\n[crates]\n[modules.x]\n{table}"
        ))
        .expect("layers")
    };
    assert!(
        layers("base = [\"top\"]\ntop = []")
            .wrong_modules("x", &imports)
            .is_empty()
    );
    let wrong = layers("base = []\ntop = [\"base\"]").wrong_modules("x", &imports);
    assert!(
        wrong[0].starts_with("x::base must not import x::top ("),
        "{wrong:?}"
    );
    let wrong = layers("top = []").wrong_modules("x", &imports);
    assert_eq!(
        wrong,
        ["x::base is not in tools/layers.toml: say there what it may import"]
    );
}

#[test]
fn a_re_export_is_an_import() {
    let base_imports_top = |base: &str| {
        let (_folder, imports) = crate_of(&[
            ("lib.rs", "mod base; mod top;"),
            ("base.rs", base),
            ("top.rs", "pub fn g() {}"),
        ]);
        pairs(&imports) == [("base", "top")]
    };
    assert!(base_imports_top("pub(crate) use crate::top::g;"));
    assert!(base_imports_top("pub use crate::top::*;"));
    assert!(base_imports_top("pub use crate::top;"));
    assert!(!base_imports_top(
        "#[cfg(test)] pub(crate) use crate::top::g;"
    ));
}

#[test]
fn a_re_export_of_ones_own_part_is_no_import() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod child; pub use child::{Part, inner::*};"),
        (
            "a/child.rs",
            "pub struct Part; pub mod inner { pub fn f() {} }",
        ),
    ]);
    assert!(imports.is_empty(), "{imports:?}");
}

#[test]
fn use_of_a_parent_is_followed() {
    let child_imports_top = |parent: &str, child: &str| {
        let (_folder, imports) = crate_of(&[
            ("lib.rs", "mod a; mod top;"),
            ("a.rs", &format!("mod child; {parent}")),
            ("a/child.rs", child),
            ("top.rs", "pub fn g() {}"),
        ]);
        pairs(&imports).contains(&("a::child", "top"))
    };
    assert!(child_imports_top("use crate::top::g;", "use super::g;"));
    assert!(child_imports_top(
        "use crate::top;",
        "fn f() { super::top::g() }"
    ));
    assert!(child_imports_top("use crate::top::*;", "use super::g;"));
    assert!(!child_imports_top(
        "use crate::top::*; fn g() {}",
        "use super::g;"
    ));
    // Globs that name each other end.
    assert!(!child_imports_top(
        "use child::*;",
        "pub use super::*; use super::g;"
    ));
}

#[test]
fn private_use_is_no_re_export() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod a; mod b; mod top;"),
        ("a.rs", "use crate::b::g;"),
        ("b.rs", "use crate::top::*;"),
        ("top.rs", "pub fn g() {}"),
    ]);
    assert_eq!(pairs(&imports), [("a", "b"), ("b", "top")]);
}

#[test]
fn a_path_in_an_attribute_is_an_import() {
    for attribute in [
        "serde(with = \"crate::top\")",
        "serde(skip, serialize_with = \"crate::top::g\")",
        "serde(deserialize_with = \"crate::top::g\", rename = \"b\")",
        "serde(default = \"crate::top::g\")",
        "arg(value_parser = crate::top::g)",
    ] {
        let base = format!("struct A {{ #[{attribute}] field: u8 }}");
        let (_folder, imports) = crate_of(&[
            ("lib.rs", "mod base; mod top;"),
            ("base.rs", &base),
            ("top.rs", "pub fn g() {} pub struct T;"),
        ]);
        assert_eq!(pairs(&imports), [("base", "top")], "{attribute}");
    }
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod base; mod top;"),
        (
            "base.rs",
            "#[serde(remote = \"crate::top::T\", rename_all = \"crate::top\")] struct A;",
        ),
        ("top.rs", "pub struct T;"),
    ]);
    assert_eq!(pairs(&imports), [("base", "top")]);
}

#[test]
fn a_crate_keeps_to_its_layer() {
    let manifest = |name: &str, rest: &str| {
        format!("[package]\nname = \"of-{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}")
    };
    let folder = folder_of(&[
        (
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"low\", \"high\", \"new\"]",
        ),
        (
            "low/Cargo.toml",
            &manifest(
                "low",
                "[dependencies]\nother-name = { package = \"of-high\", path = \"../high\" }\n\
                 [target.'cfg(unix)'.build-dependencies]\nof-high = { path = \"../high\" }",
            ),
        ),
        ("low/src/lib.rs", ""),
        (
            "high/Cargo.toml",
            &manifest(
                "high",
                "[dependencies]\nof-low = { path = \"../low\" }\n\
                 [dev-dependencies]\nof-high = { path = \".\" }\nof-new = { path = \"../new\" }",
            ),
        ),
        ("high/src/lib.rs", ""),
        ("new/Cargo.toml", &manifest("new", "")),
        ("new/src/lib.rs", ""),
    ]);
    let layers: Layers = toml::from_str(
        "circle_files_max = 8\n[crates]\nlow = { folder = \"low\", may = [] }\nhigh = { folder = \"high\", may = [\"low\"] }\n[modules]",
    )
    .expect("layers");
    let workspace = Workspace::read(folder.path()).expect("a workspace");
    let mut wrong = layers.wrong_crates(&workspace);
    wrong.sort();
    assert_eq!(
        wrong,
        [
            "low must not import high (low/Cargo.toml, build-dependencies)",
            "low must not import high (low/Cargo.toml, dependencies)",
            "new is not in tools/layers.toml: say there what it may import"
        ]
    );
}

#[test]
fn a_source_that_no_target_declares_is_found() {
    let folder = folder_of(&[
        (
            "Cargo.toml",
            "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]",
        ),
        ("src/lib.rs", "#[cfg(test)] mod tests;"),
        ("src/tests.rs", "mod deep;"),
        ("src/tests/deep.rs", ""),
        ("src/lost.rs", ""),
        (
            "tests/all/main.rs",
            "mod one; #[path = \"../support\"] mod support { mod disks; }",
        ),
        ("tests/all/one.rs", ""),
        ("tests/all/two.rs", ""),
        ("tests/support/disks.rs", "mod part;"),
        ("tests/support/disks/part.rs", ""),
        ("benches/speed.rs", "fn main() {}"),
    ]);
    let workspace = Workspace::read(folder.path()).expect("a workspace");
    assert_eq!(
        workspace.never_compiled().expect("Rust"),
        [
            "src/lost.rs is never compiled: declare it by `mod lost;` in the file above it, or remove it",
            "tests/all/two.rs is never compiled: declare it by `mod two;` in the file above it, or remove it"
        ]
    );
}

#[test]
fn the_lines_of_a_function_are_those_of_its_body() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.rs");
    let body = "    f();\n".repeat(LONG_LINES - 1);
    fs::write(
        &file,
        format!(
            "fn short() {{\n{}}}\nfn long() {{\n{body}}}\n",
            "f();\n".repeat(LONG_LINES - 2)
        ),
    )
    .expect("a file");
    let mut sizes = Sizes::default();
    sizes.add(Path::new(&file)).expect("Rust");
    assert_eq!(sizes.functions, 2);
    assert_eq!(sizes.long, 1);
}

#[test]
fn comment_that_begins_with_a_relative_clause_is_hard() {
    let source = "//! What is here.\n/// Whatever.\n// Who comes\n    /// So many.\nlet who = \"// Who\"; // Who\n/// Number of parts.";
    assert_eq!(prose::hard_comments(source), 3);
}

#[test]
fn sentences_of_a_page_are_counted_without_headings_tables_and_code() {
    let page = "# A heading of five words\n\nOne two three. Four\nfive `six`; seven or eight!\n\n* an item\n1. another item with 5 words\n\n| a | table |\n\n```text\nsome code here.\n```\nlast";
    assert_eq!(prose::sentence_words(page), [3, 3, 3, 2, 5, 1]);
}
