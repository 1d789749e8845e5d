//! The Debian package: installed, upgraded, removed and purged on this system, whose changes are thrown away, and on a
//! new one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::process::{Process, run};
use testkit::site::{clockwise, outcome};
use testkit::skip::{have, is_root, skipped, tool};

use crate::service::rights;

/// Longest time to fetch and install a new system.
const NEW_SYSTEM_WITHIN: Duration = Duration::from_secs(600);

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Makes a package of the program of the tests.
pub(crate) fn package(folder: &Path, version: &str) -> String {
    let mut make = Command::new(repository().join("tools/deb"));
    make.arg(clockwise().get_program()).arg(folder).arg(version);
    // Nobody fetches it.
    let made = outcome(make.env("DEB_COMPRESSION", "none")).done();
    made.out.trim().to_owned()
}

/// A command within `root` as its system, in namespaces of its own for mounts and processes. `prepare` are commands
/// before it, in which `$1` is `root`; `packages` is its folder `/packages`, and `words` are arguments of `command`.
pub(crate) fn inside(
    prepare: &str,
    root: &Path,
    packages: &Path,
    command: &str,
    words: &[String],
) -> Command {
    let commands = format!(
        "set -eu\nroot=$1 packages=$2\nshift 2\n{prepare}\nmkdir -p \"$root/packages\"\n\
         mount --bind \"$packages\" \"$root/packages\"\nmount -t proc proc \"$root/proc\"\n\
         mount --rbind /sys \"$root/sys\"\nmount --rbind /dev \"$root/dev\"\nmount -t tmpfs tmpfs \"$root/run\"\n\
         exec chroot \"$root\" sh -c 'cd /packages; exec {command}' sh \"$@\""
    );
    let mut inside = tool("unshare");
    inside
        .args(["--mount", "--pid", "--fork", "--kill-child"])
        .args(["sh", "-c", &commands, "sh"])
        .args([root, packages])
        .args(words);
    inside
}

/// Puts this system under one whose changes are in memory, and gone with the namespace.
pub(crate) const OVERLAY: &str = "mount -t tmpfs tmpfs \"$root\"\nmkdir \"$root/new\" \"$root/work\" \"$root/system\"\n\
     mount -t overlay overlay -o \"lowerdir=/,upperdir=$root/new,workdir=$root/work\" \"$root/system\"\n\
     root=$root/system";

/// Copies a script of these tests to the packages.
pub(crate) fn script(name: &str, packages: &Path) {
    let script = repository()
        .join("crates/clockwise/tests/support")
        .join(name);
    std::fs::copy(script, packages.join(name)).expect("room");
}

/// Runs the whole life of the package within `root`.
fn live(prepare: &str, root: &Path, packages: &Path, within: Duration) {
    let rights = rights();
    script("package.sh", packages);
    let command = "./package.sh /packages/*_1.0_*.deb /packages/*_1.1_*.deb \"$@\"";
    let words = [rights.limits.join(" "), rights.capabilities];
    let mut inside = inside(prepare, root, packages, command, &words);
    let output = Process::captured(&mut inside).output_within(within);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        output.status.success() && said.contains("== done"),
        "{said}"
    );
}

/// True if this system can make and install the package.
pub(crate) fn is_possible() -> bool {
    let tools = [
        "dpkg-deb",
        "strip",
        "unshare",
        "setpriv",
        "adduser",
        "deb-systemd-helper",
    ];
    tools.iter().all(|tool| have(tool)) && is_root("the installation of a package")
}

/// A folder with the packages 1.0 and 1.1.
fn packages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for version in ["1.0", "1.1"] {
        package(folder.path(), version);
    }
    folder
}

#[test]
fn package_has_all_parts_and_small_scripts() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let package = package(folder.path(), "1.0");
    let control = run("dpkg-deb", &["--field", &package]);
    for field in [
        "Package: clockwise\n",
        "Version: 1.0\n",
        "libc6 (>= 2.",
        "adduser",
    ] {
        assert!(control.contains(field), "{field}: {control}");
    }
    let files = run("dpkg-deb", &["--contents", &package]);
    for file in [
        "/usr/bin/clockwise",
        "/lib/systemd/system/clockwise.service",
        "/etc/clockwise/clockwise.toml",
        "/usr/share/man/man1/clockwise-serve.1.gz",
        "/usr/share/bash-completion/completions/clockwise",
        "/usr/share/zsh/vendor-completions/_clockwise",
        "/usr/share/fish/vendor_completions.d/clockwise.fish",
        "/usr/share/doc/clockwise/copyright",
        "/usr/share/doc/clockwise/guide/install.md",
    ] {
        assert!(files.contains(&format!(".{file}\n")), "{file}: {files}");
    }
    let owners = files.lines().all(|line| line.contains(" root/root "));
    assert!(owners, "{files}");
}

#[test]
fn package_is_installed_upgraded_and_removed_without_loss() {
    if !is_possible() {
        return;
    }
    if !Path::new("/etc/debian_version").exists() {
        return skipped("this is no Debian system");
    }
    let packages = packages();
    let root = tempfile::tempdir().expect("a folder");
    live(
        OVERLAY,
        root.path(),
        packages.path(),
        testkit::process::WITHIN,
    );
}

#[test]
#[ignore = "soak: fetches a new Debian system"]
fn package_is_at_home_on_a_new_system() {
    if !is_possible() || !have("debootstrap") {
        return;
    }
    let packages = packages();
    let root = tempfile::tempdir().expect("a folder");
    // The same release, from where this system has its packages.
    let targets = run(
        "apt-get",
        &[
            "indextargets",
            "--format",
            "$(REPO_URI) $(CODENAME) $(CREATED_BY)",
        ],
    );
    let of_packages = targets.lines().find(|line| line.ends_with(" Packages"));
    let mut words = of_packages.expect("a source of packages").split(' ');
    let [Some(mirror), Some(release)] = [words.next(), words.next()] else {
        panic!("no source of packages: {targets}");
    };
    let mut make = tool("debootstrap");
    make.args(["--variant=minbase", release]);
    make.arg(root.path()).arg(mirror);
    let made = Process::captured(&mut make).output_within(NEW_SYSTEM_WITHIN);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stdout)
    );
    live("", root.path(), packages.path(), NEW_SYSTEM_WITHIN);
}
