//! State shared by all runs of the demo, and a server that ends with the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::pool::{CreateOptions, Pool};
use sched::units::Bytes;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::interrupt::Interrupt;
use super::media::Clip;
use super::plan::{CAMERA_BLOCK, CAMERA_RATE, DRIVE, DRIVES, MEMORY};
use crate::client::ApiClient;
use crate::config::Config;
use crate::disks::{self, MissingFiles};
use crate::failure::{Failure, io_failure};
use crate::print::Output;
use crate::server::{Server, pool_failure};
use crate::wire::ask::{CreateVolume, PlacementAsk};
use crate::wire::view::VolumeView;

/// State shared by all runs.
pub(super) struct Stage<'a> {
    pub(super) output: &'a Output,
    pub(super) runtime: &'a Runtime,
    pub(super) interrupt: Interrupt,
    pub(super) scratch: &'a Path,
    pub(super) clips: &'a [Clip],
    /// True if those are video, and not only bytes.
    pub(super) is_video: bool,
    /// To be cloned onto a mounted file system; without it there is none.
    pub(super) repository: Option<PathBuf>,
}

impl Stage<'_> {
    /// The configuration of a run.
    fn config(&self, scheduler: &str) -> Result<Config, Failure> {
        let mut text = format!(
            "[server]\napi = \"api.sock\"\n[nbd]\nunix = \"nbd.sock\"\n[rtsp]\nlisten = \"0\"\n\
             rate = \"{}B/s\"\nblock = \"{}\"\n[pool]\nname = \"demo\"\n\
             [memory]\ntotal = \"{}\"\n[scheduler]\npolicy = \"{scheduler}\"\n",
            CAMERA_RATE.get(),
            CAMERA_BLOCK.get(),
            MEMORY.get()
        );
        for drive in 0..DRIVES {
            text += &format!(
                "[[disk]]\npath = \"drive-{drive}\"\nkind = \"emulated\"\nplant = \"{DRIVE}\"\nprofile = \"{DRIVE}\"\n"
            );
        }
        let file = self.scratch.join("clockwise.toml");
        std::fs::write(&file, text).map_err(|error| io_failure("write", &file, &error))?;
        Config::read(&file)
    }

    /// Makes the drives and the pool on them.
    pub(super) fn make_pool(&self) -> Result<(), Failure> {
        let config = self.config("exact")?;
        let opened = disks::open(&config, MissingFiles::Make)?;
        let options = CreateOptions {
            name: config.open.name.clone(),
            ..CreateOptions::default()
        };
        Pool::create(&opened.memory, opened.disks, &options).map_err(pool_failure)?;
        opened.made.keep();
        Ok(())
    }

    /// Serves the pool under `scheduler`.
    pub(super) fn serve(&self, scheduler: &str) -> Result<Serving<'_>, Failure> {
        self.interrupt.check()?;
        let config = self.config(scheduler)?;
        let server = self.runtime.block_on(Server::start(&config))?;
        Ok(Serving {
            runtime: self.runtime,
            api: ApiClient::new(&config.api),
            pool: Arc::clone(&server.app().pool),
            server: Some(server),
        })
    }

    /// URI of a volume, for programs.
    pub(super) fn uri(&self, volume: &str) -> String {
        let socket = self.scratch.join("nbd.sock");
        format!("nbd+unix:///{volume}?socket={}", socket.display())
    }
}

/// A server that ends cleanly when it is dropped.
pub(super) struct Serving<'a> {
    runtime: &'a Runtime,
    /// The way in for everybody.
    pub(super) api: ApiClient,
    /// The way in for what the demo itself reads and writes.
    pub(super) pool: Arc<Pool>,
    server: Option<Server>,
}

impl Serving<'_> {
    /// Ends the server.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        match self.server.take() {
            Some(server) => self.runtime.block_on(server.close()),
            None => Ok(()),
        }
    }

    /// Address of RTSP.
    pub(super) fn rtsp(&self) -> Option<std::net::SocketAddr> {
        self.server.as_ref().and_then(Server::rtsp)
    }

    /// Reads a resource of the API.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.runtime.block_on(self.api.get(path))
    }

    /// The drives, by name.
    pub(super) fn drives(&self) -> Vec<String> {
        let status = self.pool.status();
        status.disks.into_iter().map(|disk| disk.name).collect()
    }

    /// Makes a volume from byte `from` of each of `disks` on; of all, if none are named.
    pub(super) fn make_volume(
        &self,
        name: &str,
        size: Bytes,
        disks: &[String],
        from: Bytes,
    ) -> Result<(), Failure> {
        let ask = CreateVolume {
            name: name.to_owned(),
            size_bytes: size.get(),
            placement: PlacementAsk {
                disks: disks.to_vec(),
                from_byte: Some(from.get()),
                ..PlacementAsk::default()
            },
        };
        self.runtime
            .block_on(self.api.post::<_, VolumeView>("/v1/volumes", &ask))
            .map(drop)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.close() {
            tracing::error!("{}", failure.what);
        }
    }
}
