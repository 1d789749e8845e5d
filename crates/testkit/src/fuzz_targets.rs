//! The targets of `make fuzz`, which tests replay on the stable toolchain, here and in another crate.

use std::collections::BTreeSet;
use std::path::Path;

/// The names of all targets. Of each there is a file, and no file is left out.
pub fn fuzz_targets() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("its manifest");
    let name_of = |target: &str| {
        let mut lines = target.lines();
        let name = lines.find_map(|line| line.strip_prefix("name = \""));
        name.and_then(|name| name.strip_suffix('"'))
            .expect("a target has a name")
            .to_owned()
    };
    let targets: BTreeSet<_> = manifest.split("[[bin]]").skip(1).map(name_of).collect();
    let sources = std::fs::read_dir(folder.join("fuzz_targets")).expect("their sources");
    let sources = sources.map(|entry| {
        let path = entry.expect("it can be read").path();
        let name = path.file_stem().expect("it has a name");
        name.to_string_lossy().into_owned()
    });
    assert_eq!(
        targets,
        sources.collect(),
        "fuzz/Cargo.toml and fuzz/fuzz_targets"
    );
    targets
}

/// Checks that a target only calls this function, given by its path. A test that calls the same path then
/// knows that the target compiles. Compiling the target itself would take the fuzzer and a workspace of its
/// own.
pub fn assert_calls(target: &str, function: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fuzz/fuzz_targets/{target}.rs"));
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let expected =
        format!("#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|data: &[u8]| {function}(data));\n");
    assert_eq!(text, expected, "{}", file.display());
}
