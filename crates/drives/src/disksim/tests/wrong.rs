//! Files with missing parts, absurd values, circles, and links to elsewhere.

use super::super::{Folder, ImportError, import};
use super::{MODEL, Made, SPECS, SYSTEM, changed, files, made};

#[test]
fn missing_parts_are_named_with_their_place() {
    let named = |error: ImportError, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    named(
        import(&Made(vec![]), None).unwrap_err(),
        &[".parv", ".diskspecs"],
    );
    let mut parts = files(str::to_owned);
    parts.0.remove(2);
    named(
        import(&parts, None).unwrap_err(),
        &["drive.diskspecs:4", "drive.model"],
    );
    named(
        changed("source drive.diskspecs", "").unwrap_err(),
        &["disksim_disk", "drive.parv"],
    );
    named(
        changed("Blocks per track = 60,", "").unwrap_err(),
        &["drive.model:8", "Blocks per track", "missing"],
    );
    named(
        changed("Head switch time = 0.8,", "").unwrap_err(),
        &["Head switch time"],
    );
    named(
        changed("Seek type = linear", "Seek type = extracted").unwrap_err(),
        &["Full seek curve"],
    );
    named(
        changed(
            "Seek type = linear",
            "Seek type = extracted, Full seek curve = drive.seek",
        )
        .unwrap_err(),
        &["drive.seek"],
    );
    named(
        changed("Average seek time = 5.0,", "").unwrap_err(),
        &["Average seek time"],
    );
    named(
        changed("Fast write level = 1,", "").unwrap_err(),
        &["drive.diskspecs", "Fast write level"],
    );
    let two = |text: &str| text.replace("instantiate [ disk0 ] as MADE", "disksim_disk OTHER { }");
    named(made(two).unwrap_err(), &["--disk", "MADE, OTHER"]);
}

#[test]
fn absurd_values_are_refused_by_file_line_and_key() {
    for (from, to, words) in [
        (
            "Blocks per track = 60",
            "Blocks per track = 0",
            "Blocks per track",
        ),
        (
            "Blocks per track = 60",
            "Blocks per track = 60000000000",
            "Blocks per track",
        ),
        (
            "Blocks per track = 60",
            "Blocks per track = sixty",
            "not a whole number",
        ),
        (
            "Number of data surfaces = 2",
            "Number of data surfaces = -2",
            "surfaces",
        ),
        (
            "Number of cylinders = 300",
            "Number of cylinders = 200",
            "cylinder 299",
        ),
        (
            "Last cylinder number = 199",
            "Last cylinder number = 250",
            "zone 1",
        ),
        (
            "Last cylinder number = 199",
            "Last cylinder number = -1",
            "Last cylinder",
        ),
        ("(in rpms) = 6000", "(in rpms) = 0", "Rotation speed"),
        ("(in rpms) = 6000", "(in rpms) = 1.0e300", "Rotation speed"),
        (
            "Single cylinder seek time = 1.0",
            "Single cylinder seek time = nan",
            "not a number",
        ),
        (
            "Head switch time = 0.8",
            "Head switch time = 1e9",
            "Head switch time",
        ),
        ("settling delay = 0.5", "settling delay = -1e9", "settling"),
        (
            "Segment size (in blks) = 64",
            "Segment size (in blks) = 0",
            "Segment size",
        ),
        (
            "segments = 3",
            "segments = 99999999999999999999",
            "segments",
        ),
        (
            "Maximum number of write segments = 1",
            "Maximum number of write segments = 4",
            "write segments",
        ),
        (
            "High (read) water mark = 0.5",
            "High (read) water mark = 1.5",
            "water mark",
        ),
        (
            "Enable caching in buffer = 1",
            "Enable caching in buffer = 0",
            "needs a cache",
        ),
        (
            "Sparing scheme used = 0",
            "Sparing scheme used = 11",
            "Sparing scheme",
        ),
        ("slips = []", "slips = [ 1, x ]", "slips"),
        ("slips = []", "slips = [ 99999999 ]", "beyond its end"),
        ("defects = []", "defects = [ 1 ]", "even number"),
        (
            "Layout Model = dm_layout_g1 {",
            "Layout Model = dm_layout_g9 {",
            "dm_layout_g9",
        ),
        ("Seek type = linear", "Seek type = quick", "quick"),
        ("type = 1, Arb", "type = 7, Arb", "type"),
        (
            "Model = source drive.model",
            "Model = Nothing",
            "no block `Nothing`",
        ),
        (
            "Bulk sector transfer time = 0.01",
            "Bulk sector transfer time = [ 1 ]",
            "should be a word",
        ),
    ] {
        let error = changed(from, to).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("drive."),
            "{to}: {error}"
        );
    }
}

#[test]
fn text_that_is_no_parameter_file_is_refused_where_it_is_wrong() {
    for (from, to, words) in [
        ("Max queue length = 1,", "Max queue length = 1", "`,`"),
        ("Max queue length = 1,", "Max queue length 1,", "`=`"),
        (
            "Number of spares = 0, slips",
            "Number of spares = 0; slips",
            "`;`",
        ),
        ("as BUS", "is BUS", "`as`"),
        ("ctlr0 .. ctlr1", "ctlr1 .. ctlr0", "range"),
        ("disksim_disk disk0 []", "disk0", "attached"),
    ] {
        let error = changed(from, to).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("drive."),
            "{to}: {error}"
        );
    }
    let cut = made(|text| text[..text.len() / 2].to_owned()).unwrap_err();
    assert!(cut.to_string().contains("ends"), "{cut}");
    let deep = |text: &str| text.replace("slips = []", &format!("slips = {}", "[".repeat(5_000)));
    let error = made(deep).unwrap_err().to_string();
    assert!(error.contains("levels deep"), "{error}");
}

#[test]
fn files_that_include_each_other_are_refused_with_the_circle() {
    let circle = changed(
        "dm_disk MADE_model {",
        "source drive.diskspecs\n dm_disk MADE_model {",
    );
    let error = circle.unwrap_err().to_string();
    assert!(
        error.contains("drive.diskspecs -> drive.model -> drive.diskspecs"),
        "{error}"
    );
    let own = changed("disksim_bus BUS {", "source drive.parv\n disksim_bus BUS {");
    let error = own.unwrap_err().to_string();
    assert!(error.contains("drive.parv -> drive.parv"), "{error}");
    // The same file twice, one after the other, is no circle.
    let twice = changed(
        "disksim_bus BUS {",
        "source drive.diskspecs\n disksim_bus BUS {",
    )
    .unwrap();
    assert!(twice.notes.iter().any(|note| note.contains("already")));
    // A file that includes many copies of another, and these many of a third, ends too.
    let many = |text: &str| {
        text.replace(
            "disksim_bus BUS {",
            &format!(
                "{} disksim_bus BUS {{",
                "source drive.diskspecs\n".repeat(100)
            ),
        )
    };
    assert!(made(many).unwrap_err().to_string().contains("more than"));
}

#[test]
fn a_folder_shows_only_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("drive");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("secret.model"), MODEL).unwrap();
    std::os::unix::fs::symlink("../secret.model", inner.join("link.model")).unwrap();
    std::fs::write(inner.join("drive.parv"), SYSTEM).unwrap();
    std::fs::write(inner.join("drive.model"), MODEL).unwrap();
    let import_with = |name: &str| {
        let specs = SPECS.replace("source drive.model", &format!("source {name}"));
        std::fs::write(inner.join("drive.diskspecs"), specs).unwrap();
        import(&Folder(inner.clone()), None)
    };
    assert!(import_with("drive.model").is_ok());
    for name in ["../secret.model", "/etc/passwd", "link.model"] {
        let error = import_with(name).unwrap_err().to_string();
        assert!(error.contains("outside the folder"), "{error}");
    }
    assert!(
        import_with(".")
            .unwrap_err()
            .to_string()
            .contains("not a file")
    );
}

#[test]
fn any_change_of_an_input_is_a_drive_or_an_error() {
    let seed = testkit::seed("drive files", Some(3));
    let mut random = testkit::Random(seed);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/drive");
    let mut inputs: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    const NUMBERS: [&str; 10] = [
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "1e300",
        "65535",
        "4294967296",
        "99999999999999",
        "[ 1, 2 ]",
    ];
    for path in inputs {
        let input = std::fs::read_to_string(&path).unwrap();
        super::super::fuzzing::drive(input.as_bytes());
        let words: Vec<&str> = input.split_inclusive([' ', '\n']).collect();
        for _ in 0..250 {
            let mut words = words.clone();
            for _ in 0..1 + below(3) {
                let at = below(words.len());
                match below(4) {
                    0 => drop(words.remove(at)),
                    1 => words.insert(at, words[below(words.len())]),
                    _ => {
                        // A number, if there is one nearby.
                        let is_number =
                            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
                        let near = words[at..].iter().position(is_number);
                        words[near.map_or(at, |near| at + near)] = NUMBERS[below(NUMBERS.len())];
                        words.insert(near.map_or(at, |near| at + near) + 1, " ,");
                    }
                }
            }
            super::super::fuzzing::drive(words.concat().as_bytes());
        }
    }
}
