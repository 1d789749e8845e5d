//! A server of this build or of another one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use testkit::rtsp::Client;
use testkit::site::{Serve, Site, call, clockwise, outcome};
use testkit::until;

/// A pool on two files in memory, and its server. The files have the profile of a solid-state drive, which carries all
/// players.
pub(crate) struct Served {
    pub(crate) site: Site,
    serve: Serve,
    program: Option<PathBuf>,
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
}

fn command(program: Option<&Path>) -> Command {
    let Some(program) = program else {
        return clockwise();
    };
    let mut command = Command::new(program);
    command.env_remove("CLOCKWISE_CONFIG");
    command.env_remove("CLOCKWISE_SOCKET");
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

impl Served {
    /// `program` is another build of the server.
    pub(crate) fn new(program: Option<&Path>) -> Self {
        let site = Site {
            folder: tempfile::tempdir_in("/dev/shm").expect("a folder in memory"),
        };
        let mut text = String::from(
            "[server]\napi = \"api.sock\"\nrealtime = false\n[pool]\nname = \"live\"\nextent = \"1MiB\"\n\
             [memory]\ntotal = \"256MiB\"\n[http]\nlisten = \"0\"\n\
             [rtsp]\nlisten = \"0\"\nblock = \"256KiB\"\n",
        );
        for disk in 0..2 {
            text += &format!(
                "[[disk]]\npath = \"disk-{disk}\"\nkind = \"file\"\nsize = \"1GiB\"\n\
                 profile = \"conservative-solid-state\"\n"
            );
        }
        std::fs::write(site.config(), text).expect("the configuration can be written");
        let program = program.map(Path::to_owned);
        let mut create = command(program.as_deref());
        create.arg("--config").arg(site.config());
        outcome(create.args(["pool", "create"])).done();
        Self::of(site, program)
    }

    /// Serves the pool of a site.
    pub(crate) fn of(site: Site, program: Option<PathBuf>) -> Self {
        let serve = site.serve_by(command(program.as_deref()));
        let address = |name: &str| -> SocketAddr {
            let text = serve.ready.split(&format!(" {name}=\"")).nth(1);
            let address = text.and_then(|rest| rest.split('"').next()?.parse().ok());
            address.unwrap_or_else(|| panic!("no {name}: {}", serve.ready))
        };
        let (rtsp, http) = (address("rtsp"), address("http"));
        Self {
            site,
            serve,
            program,
            rtsp,
            http,
        }
    }

    pub(crate) fn volume(&self, name: &str) {
        let mut create = command(self.program.as_deref());
        create.arg("--config").arg(self.site.config());
        outcome(create.args(["volume", "create", name, "--size", "150MiB"])).done();
    }

    /// Waits until a path can be played live.
    pub(crate) fn is_live(&self, path: &str) {
        until("it can be watched", || {
            let mut client = Client::connect(self.rtsp);
            client.ask("DESCRIBE", path, "", "").status == 200
        });
    }

    /// Bytes that the server has read from its disks.
    pub(crate) fn read_bytes(&self) -> u64 {
        let status = call(&self.site, "GET", "/v1/status", "").1;
        let disks = status["disks"].as_array().expect("disks").iter();
        disks.filter_map(|of| of["read_bytes"].as_u64()).sum()
    }

    /// Processor time of the server's process in seconds.
    pub(crate) fn processor_s(&self) -> f64 {
        let pid = Pid::from_raw(self.serve.pid() as i32);
        let clock = ClockId::pid_cpu_clock_id(pid).expect("the server runs");
        let time = clock_gettime(clock).expect("the server runs");
        time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
    }

    pub(crate) fn ends(self) {
        let (status, log) = self.serve.terminate();
        assert_eq!(status, Some(0), "{log}");
    }
}
