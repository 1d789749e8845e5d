//! Reads how the sources import each other. `structure check` holds that against `tools/layers.toml` and
//! the longest circle that it allows, and finds sources that nobody compiles; `structure circles` tells what ties each circle, `structure modules`
//! what the top modules of each crate import, as that file has it; `structure table` tells the figures of `docs/design/architecture.md`.
//!
//! A file imports the file that defines what it names; `use` items are followed. What a module takes from a
//! module that holds it, or re-exports from within itself, is not counted: a file and the folder of its name
//! are one whole. Of imports, those that only tests compile are left out.

#![forbid(unsafe_code)]

mod circles;
mod imports;
mod layers;
mod modules;
mod prose;
mod sizes;
#[cfg(test)]
mod tests;
mod workspace;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use imports::{Import, between_files};
use layers::Layers;
use modules::Crate;
use sizes::Sizes;
use workspace::{Workspace, rust_files};

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let result = match verb.as_str() {
        "check" => check(),
        "circles" => tell_circles(),
        "modules" => tell_modules(),
        "table" => table(),
        _ => Err("say what to do: check, circles, modules or table".to_owned()),
    };
    match result {
        Ok(text) => {
            // A reader that is gone has read enough.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(text) => {
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

/// Each crate that is declared, with what its modules import.
fn crates(layers: &Layers) -> Result<Vec<(String, BTreeSet<Import>)>, String> {
    let mut read = Vec::new();
    for (name, layer) in &layers.crates {
        let sources = Path::new(&layer.folder).join("src");
        let root = ["lib.rs", "main.rs"].map(|file| sources.join(file));
        let root = root.iter().find(|file| file.exists()).ok_or(format!(
            "{}: there is no lib.rs or main.rs",
            sources.display()
        ))?;
        read.push((name.clone(), imports::of(&Crate::read(root)?)));
    }
    Ok(read)
}

fn check() -> Result<String, String> {
    let layers = Layers::read(Path::new("tools/layers.toml"))?;
    let workspace = Workspace::read(Path::new("."))?;
    let mut wrong = layers.wrong_crates(&workspace);
    wrong.extend(workspace.never_compiled()?);
    for (name, imports) in crates(&layers)? {
        wrong.extend(layers.wrong_modules(&name, &imports));
        for circle in circles::of(&between_files(&imports)) {
            if circle.len() > layers.circle_files_max {
                let files: Vec<String> = circle
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                wrong.push(format!(
                    "{} files of {name} import each other in a circle, and at most {} may: {}",
                    circle.len(),
                    layers.circle_files_max,
                    files.join(", ")
                ));
            }
        }
    }
    if let Some(count) = prose::too_many_hard_comments()? {
        wrong.push(format!(
            "{count} comments begin with {}, and at most {} may: begin them with a subject",
            prose::HARD.join(", "),
            prose::HARD_COMMENTS_MAX
        ));
    }
    if wrong.is_empty() {
        Ok(String::new())
    } else {
        Err(wrong.join("\n"))
    }
}

fn tell_circles() -> Result<String, String> {
    let layers = Layers::read(Path::new("tools/layers.toml"))?;
    let mut text = String::new();
    for (name, imports) in crates(&layers)? {
        for circle in circles::of(&between_files(&imports)) {
            text += &format!("{name}: {} files\n", circle.len());
            let inside = imports.iter().filter(|import| {
                import.file != import.named
                    && circle.contains(&import.file)
                    && circle.contains(&import.named)
            });
            for import in inside {
                text += &format!(
                    "    {} -> {}: {}\n",
                    import.file.display(),
                    import.named.display(),
                    import.names.join(", ")
                );
            }
        }
    }
    Ok(text)
}

fn tell_modules() -> Result<String, String> {
    let layers = Layers::read(Path::new("tools/layers.toml"))?;
    let mut text = String::new();
    for (name, imports) in crates(&layers)? {
        text += &format!("[modules.{name}]\n");
        for (from, to) in layers::between_tops(&imports) {
            text += &format!("{from} = {to:?}\n");
        }
    }
    Ok(text)
}

/// Figures by name, a line each, for `tools/structure-table`.
fn table() -> Result<String, String> {
    let layers = Layers::read(Path::new("tools/layers.toml"))?;
    let mut sizes = Sizes::default();
    for (name, layer) in &layers.crates {
        if layers.for_tests.contains(name) {
            continue;
        }
        for file in rust_files(&Path::new(&layer.folder).join("src"))? {
            let is_test = |part| part == "tests" || part == "tests.rs";
            if !file.iter().any(is_test) {
                sizes.add(&file)?;
            }
        }
    }
    let mut longest = 0;
    for (_, imports) in crates(&layers)? {
        let circles = circles::of(&between_files(&imports));
        longest = longest.max(circles.first().map_or(0, Vec::len));
    }
    let figures = [
        ("source files", sizes.files.len()),
        ("lines in them", sizes.files.iter().sum()),
        ("median file, lines", sizes.median_lines()),
        (
            "largest file, lines",
            sizes.files.iter().max().copied().unwrap_or(0),
        ),
        ("functions", sizes.functions),
        ("functions over 70 lines", sizes.long),
        ("longest import circle, files", longest),
    ];
    let figures = figures.into_iter().chain(prose::figures()?);
    Ok(figures
        .map(|(name, figure)| format!("{name}\t{figure}\n"))
        .collect())
}
