//! The texts that people read, word for word, as far as every machine prints the same. `INSTA_UPDATE=always make
//! test ARGS=server::text` writes what has changed; read the difference before it is committed.

use crate::commands::commands;
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use testkit::site::{Outcome, Site, clockwise, outcome};

/// Output of a command, with the test's folder taken out and its exit status put in.
fn said(site: &Site, arguments: &[&str]) -> String {
    let outcome = site.run(arguments);
    whole(site, &outcome)
}

fn whole(site: &Site, outcome: &Outcome) -> String {
    let folder = site.folder.path().display().to_string();
    format!(
        "{}{}exit status {}\n",
        outcome.out, outcome.err, outcome.code
    )
    .replace(&folder, "FOLDER")
}

/// The output without the disk's identity, which is a random number.
fn without_identity(said: &str) -> String {
    let (before, rest) = said.split_once("identity is ").expect("an identity");
    let (_, after) = rest.split_once(')').expect("its end");
    format!("{before}identity is ...){after}")
}

fn admit(site: &Site, tasks: &str) -> String {
    let file = site.path("tasks.toml");
    std::fs::write(&file, tasks).expect("a file");
    said(site, &["admit", &file.display().to_string()])
}

#[test]
fn verdicts_of_admission() {
    let site = Site::new(1);
    let cameras =
        "[[task]]\nname = \"camera\"\nservice_us = 4000\nperiod_us = 200000\ncount = 33\n";
    insta::assert_snapshot!("admit-schedulable", admit(&site, cameras));
    let blocked = "[[task]]\nservice_ms = 42\nperiod_ms = 250\n[[task]]\nname = \"long\"\n\
                   service_ms = 250\nperiod_ms = 2000\n";
    insta::assert_snapshot!("admit-refused", admit(&site, blocked));
    let wrong = "[[task]]\nservice_us = 10\nperiod_us = 0\n";
    insta::assert_snapshot!("admit-wrong", admit(&site, wrong));
    insta::assert_snapshot!(
        "admit-no-file",
        said(&site, &["admit", "/nonexistent.toml"])
    );
}

#[test]
fn pools_and_what_is_wrong_with_them() {
    let site = Site::new(2);
    insta::assert_snapshot!("no-server", said(&site, &["volume", "list"]));
    insta::assert_snapshot!("no-pool", said(&site, &["serve"]));
    insta::assert_snapshot!("pool-create", said(&site, &["pool", "create"]));
    insta::assert_snapshot!("pool-check-sound", said(&site, &["pool", "check"]));
    site.configure(&["disk-0".to_owned()]);
    let missing = without_identity(&said(&site, &["pool", "check"]));
    insta::assert_snapshot!("pool-check-missing", missing);
    std::fs::write(
        site.config(),
        "[server]\nsocket = \"x\"\n[[disk]]\npath = \"d\"\nkind = \"file\"\n",
    )
    .expect("a file");
    insta::assert_snapshot!("config-unknown-key", said(&site, &["serve"]));
}

#[test]
fn volumes_and_streams() {
    let (site, server) = Site::serving(1);
    insta::assert_snapshot!("volume-none", said(&site, &["volume", "list"]));
    let create = |name, size| said(&site, &["volume", "create", name, "--size", size]);
    insta::assert_snapshot!("volume-create", create("cam-1", "3MiB"));
    insta::assert_snapshot!("volume-exists", create("cam-1", "3MiB"));
    insta::assert_snapshot!("volume-too-large", create("cam-2", "1PiB"));
    insta::assert_snapshot!("volume-bad-name", create("a/b", "1MiB"));
    insta::assert_snapshot!("volume-bad-size", create("cam-2", "-1GiB"));
    insta::assert_snapshot!("volume-list", said(&site, &["volume", "list"]));
    insta::assert_snapshot!("volume-unknown", said(&site, &["volume", "show", "cam-3"]));
    let smaller = &["volume", "grow", "cam-1", "--size", "1MiB"];
    insta::assert_snapshot!("volume-grow-smaller", said(&site, smaller));
    let play = |rate, block| {
        let stream = ["stream", "play", "--volume", "cam-1", "--to", "/dev/null"];
        said(
            &site,
            &[&stream[..], &["--rate", rate, "--block", block]].concat(),
        )
    };
    insta::assert_snapshot!("stream-too-much", play("900MB/s", "64KiB"));
    insta::assert_snapshot!("stream-bad-block", play("1MB/s", "100KB"));
    insta::assert_snapshot!("stream-bad-rate", play("NaN", "64KiB"));
    insta::assert_snapshot!("stream-none", said(&site, &["stream", "list"]));
    insta::assert_snapshot!("stream-unknown", said(&site, &["stream", "end", "7"]));
    insta::assert_snapshot!("disk-unknown", said(&site, &["disk", "show", "sdz"]));
    insta::assert_snapshot!("volume-delete", said(&site, &["volume", "delete", "cam-1"]));
    assert_eq!(server.terminate().0, Some(0));
}

/// The page may say of several commands at once what they all take, and in which words it likes; what
/// may not be is that it does not name an option at all.
#[test]
fn the_page_of_commands_names_every_command_and_option() {
    let page = include_str!("../../../../docs/reference/cli.md");
    let is_named = |option: &str| {
        let option = format!("--{option}");
        let goes_on = |next: char| next.is_alphanumeric() || next == '-';
        let mut after = page.split(&option).skip(1);
        after.any(|rest| !rest.starts_with(goes_on))
    };
    for command in commands() {
        for word in command.name.split(' ').skip(1) {
            assert!(page.contains(word), "no {word} of {}", command.name);
        }
        for option in command.options {
            assert!(is_named(&option), "no --{option} of {}", command.name);
        }
    }
    for option in clockwise::cmd::Cli::command().get_arguments() {
        let option = option.get_long().expect("there are no others");
        assert!(is_named(option), "no --{option}");
    }
}

/// True if a completion script offers a word, asked as a shell asks it.
fn is_offered(shell: Shell, script: &str, word: &str) -> bool {
    let entry = match shell {
        Shell::Bash => {
            let mut lists = script.lines().filter(|line| line.contains("opts="));
            return lists.any(|list| list.split([' ', '"']).any(|one| one == word));
        }
        Shell::Zsh => format!("'{word}:"),
        Shell::Fish => format!("-a \"{word}\""),
        Shell::Elvish => format!("cand {word} '"),
        Shell::PowerShell => format!("::new('{word}',"),
        other => panic!("how does {other} complete?"),
    };
    script.contains(&entry)
}

#[test]
fn every_command_has_a_manual_page_and_every_shell_completions() {
    let site = Site::new(1);
    let folder = site.path("man").display().to_string();
    site.run(&["man", &folder]).done();
    let commands = commands();
    for command in &commands {
        let name = format!("{}.1", command.name.replace(' ', "-"));
        let page = testkit::site::read_text(&site.path("man").join(&name));
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
        for option in &command.options {
            let option = option.replace('-', "\\-");
            assert!(
                page.contains(&format!("\\-\\-{option}")),
                "{option} in {name}"
            );
        }
    }
    let pages = std::fs::read_dir(site.path("man")).expect("the folder");
    assert_eq!(pages.count(), commands.len());
    for shell in Shell::value_variants() {
        let script = site.run(&["completions", &shell.to_string()]).done().out;
        for command in &commands {
            let mut words = command.name.split(' ').skip(1);
            let is_offered = words.all(|word| is_offered(*shell, &script, word));
            assert!(is_offered, "no {} for {shell}", command.name);
        }
    }
    let unknown = outcome(clockwise().args(["completions", "csh"]));
    unknown.fails(2, &["csh", "bash"]);
}
