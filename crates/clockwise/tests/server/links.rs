//! Disks that share a link, from the configuration to what the commands show.

use testkit::site::{Outcome, Site};

/// A site with three emulated drives, behind a link of this rate with these other keys.
fn site(rate: &str, keys: &str) -> Site {
    let site = Site::new(1);
    let mut text = String::from(
        "[server]\napi = \"api.sock\"\nrealtime = false\n[nbd]\nunix = \"nbd.sock\"\n",
    );
    for drive in 0..3 {
        text += &format!(
            "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
             profile = \"quantum-atlas-ii\"\n"
        );
    }
    let disks = "[\"drive-0\", \"drive-1\", \"drive-2\"]";
    text += &format!("[[link]]\nname = \"string\"\ndisks = {disks}\nrate = \"{rate}\"\n{keys}");
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site
}

fn created(rate: &str, keys: &str) -> Site {
    let site = site(rate, keys);
    site.run(&["pool", "create", "--extent", "1MiB"]).done();
    site
}

/// The row of `disk show` that starts with this word.
fn row(shown: &Outcome, word: &str) -> String {
    let mut lines = shown.out.lines();
    let row = lines.find(|line| line.starts_with(word));
    row.unwrap_or_else(|| panic!("no {word} in {shown:?}"))
        .to_owned()
}

#[test]
fn link_that_cannot_be_is_refused_with_its_line() {
    site("9MB/s", "").run(&["pool", "create"]).fails(
        2,
        &[
            "clockwise.toml:",
            "link `string` carries 9",
            "less than one of its disks",
        ],
    );
}

#[test]
fn first_disks_of_a_link_that_lends_promise_and_the_others_do_not() {
    // Each drive reads 11 MB/s at most.
    let site = created("23MB/s", "admission = \"lend\"\n");
    let server = site.serve();
    for disk in 0..3 {
        let volume = format!("v{disk}");
        let path = site.path(&format!("drive-{disk}")).display().to_string();
        site.run(&[
            "volume", "create", &volume, "--size", "8MiB", "--disk", &path,
        ])
        .done();
    }
    let play = |volume| {
        [
            "stream",
            "play",
            "--volume",
            volume,
            "--rate",
            "400KB/s",
            "--block",
            "64KiB",
            "--length",
            "256KiB",
            "--to",
            "/dev/null",
        ]
    };
    site.run(&play("v2")).fails(
        2,
        &[
            "drive-2 has no place of its own on link \"string\"",
            "admission",
        ],
    );
    site.run(&play("v1")).done();
    let shown = site.run(&["disk", "show", "2"]).done();
    assert!(
        row(&shown, "link").ends_with("; this disk promises nothing"),
        "{shown:?}"
    );
    let shown = site.run(&["disk", "show", "1"]).done();
    assert!(
        row(&shown, "link").contains("string, 0.0 % promised of 23"),
        "{shown:?}"
    );
    drop(server);
}
