//! The guide for the package, word by word: from its installation to a camera in a browser.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testkit::process::Process;
use testkit::rtsp::browser::Browser;
use testkit::rtsp::serving;
use testkit::site::read_text;
use testkit::skip::{have, skipped, tool};

use crate::package::{OVERLAY, inside, is_possible, package, repository, script};
use crate::service::rights;

/// Section of the guide whose commands are run.
const SECTION: &str = "## From the package to a camera\n";

/// A network of its own, in which every port is free. It is gone when this and all in it are.
struct Network {
    _holder: Process,
    _until: ChildStdin,
    name_space: File,
}

impl Network {
    fn new() -> Self {
        let mut command = tool("unshare");
        let up = "ip link set lo up; echo up; exec cat";
        command.args(["--net", "sh", "-euc", up]);
        let mut holder = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut line = String::new();
        let heard = BufReader::new(holder.heard()).read_line(&mut line);
        assert!(heard.is_ok() && line == "up\n", "{line}");
        let name_space = File::open(format!("/proc/{}/ns/net", holder.id()));
        Self {
            _until: holder.stdin.take().expect("it is piped"),
            _holder: holder,
            name_space: name_space.expect("it is there"),
        }
    }

    /// Does something in a thread within it. What that starts is within as well.
    fn run(&self, work: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let within = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.name_space.as_fd(), network).expect("root may");
                work();
            });
            within
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}

/// The commands of the guide: the first lines that are indented.
fn commands() -> Vec<String> {
    let guide = read_text(&repository().join("docs/guide/install.md"));
    let (_, section) = guide.split_once(SECTION).expect("the section");
    // Without a spare drive.
    assert!(section.contains("\n       clockwise init --file 64GiB\n"));
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let commands = lines.map_while(|line| line.strip_prefix("    "));
    commands.map(str::to_owned).collect()
}

#[test]
fn guide_leads_from_the_package_to_a_camera_in_a_browser() {
    if !is_possible() || !["ffmpeg", "chromium", "ip"].iter().all(|tool| have(tool)) {
        return;
    }
    if !Path::new("/etc/debian_version").exists() {
        return skipped("this is no Debian system");
    }
    Network::new().run(guide_is_followed);
}

fn guide_is_followed() {
    // The camera: a server to which tiny pictures are published, so that 30 days of them are not much.
    let (site, camera, address) = serving("");
    let mut publisher = tool("ffmpeg");
    publisher.args(["-loglevel", "error", "-re", "-f", "lavfi", "-i"]);
    publisher.arg("color=size=64x48:rate=5:duration=600");
    publisher.args(
        "-c:v libx264 -tune zerolatency -pix_fmt yuv420p -g 10 -f rtsp -rtsp_transport tcp"
            .split(' '),
    );
    let publisher = Process::spawn(publisher.arg(format!("rtsp://{address}/cam")));

    let commands = commands();
    assert!(commands.len() < 5, "the browser is the fifth: {commands:?}");
    let url = format!("rtsp://{address}/cam/live");
    let here = commands
        .join("\n")
        .replace("rtsp://USER:PASSWORD@192.0.2.7/stream1", &url)
        .replace("clockwise init", "clockwise init --file 4GiB");
    assert!(here.contains(&url) && here.contains("--file"), "{here}");

    let folder = tempfile::tempdir().expect("a folder");
    let (packages, root, room) = (
        folder.path().join("p"),
        folder.path().join("r"),
        folder.path().join("p/room"),
    );
    for path in [&packages, &root, &room] {
        std::fs::create_dir(path).expect("a folder");
    }
    package(&packages, "1.0");
    script("guide.sh", &packages);
    std::fs::write(packages.join("commands"), here + "\n").expect("room");
    let rights = rights();
    let words = [rights.limits.join(" "), rights.capabilities];
    let command = "./guide.sh commands /packages/room \"$@\" 2>&1";
    let mut followed = inside(OVERLAY, &root, &packages, command, &words);
    let mut followed = Process::spawn(followed.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let watching = followed.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(followed.heard())
        .lines()
        .map(|line| line.expect("text"));
    let mut said = Vec::new();
    while said.last().is_none_or(|line| line != "== watch") {
        let next = lines.next();
        said.push(next.unwrap_or_else(|| panic!("{}", said.join("\n"))));
    }

    let guide = read_text(&repository().join("docs/guide/install.md"));
    let page = "http://localhost:8080/";
    assert!(guide.contains(&format!("<{page}>")));
    let mut browser = Browser::start(folder.path(), None);
    assert_eq!(browser.open(page), Ok(200));
    let live =
        browser.does("Promise.resolve(document.querySelector('a[href$=\"door/live/\"]').href)");
    assert_eq!(browser.open(live.as_str().expect("an address")), Ok(200));
    let frames = browser.does(
        "new Promise(yes => {
            const video = document.getElementById('video');
            const look = () => {
                const frames = video.getVideoPlaybackQuality().totalVideoFrames;
                if (frames > 10) yes(frames); else requestAnimationFrame(look);
            };
            look();
        })",
    );
    assert!(
        frames.as_u64().is_some_and(|frames| frames > 10),
        "{frames}"
    );
    browser.close();

    drop(watching);
    said.extend(lines);
    let said = said.join("\n");
    assert!(said.ends_with("== done"), "{said}");
    assert!(said.contains("30d"), "{said}");
    drop(publisher);
    camera.terminate();
    drop(site);
}
