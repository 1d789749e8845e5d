//! The sources of a server, each with a thread of its own, and the file that remembers them.

mod file;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::archive::archives::Archives;
use crate::camera::inspection::{Inspection, InspectionError};
use crate::camera::source::{SourceSpec, Status, Worker};
use crate::private_file::replace;
use file::{encode, parse};

/// The largest number of sources of a server. Each has a thread.
pub const SOURCES_MAX: usize = 1_024;

/// The settings of all sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcesConfig {
    /// The file that remembers them.
    pub file: PathBuf,
    /// The rate to reserve if neither the source nor the camera's description states one.
    pub rate: BytesPerSecond,
    /// The size of the blocks of new archives.
    pub block: Bytes,
    /// After this time without data from its camera, a source connects again.
    pub timeout: Nanos,
}

/// Why an operation on sources failed.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The name is taken.
    #[error("source {0:?} already exists")]
    Exists(String),
    /// No source has that name.
    #[error("there is no source {0:?}")]
    Missing(String),
    /// There are [`SOURCES_MAX`] sources.
    #[error("limit of {SOURCES_MAX} sources reached")]
    TooMany,
    /// The server ends.
    #[error("the server is ending")]
    Ending,
    /// The file cannot be read or written.
    #[error("the sources file {0} cannot be read or written: {1}")]
    File(PathBuf, io::Error),
    /// The file is invalid.
    #[error("{0} is not a valid sources file: {1}")]
    Content(PathBuf, String),
    /// The host has no memory or threads left.
    #[error("a source cannot be started: {0}")]
    Host(io::Error),
}

/// Why a camera was not inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be a source.
    #[error(transparent)]
    Source(#[from] SourcesError),
    /// It cannot be recorded.
    #[error(transparent)]
    Camera(#[from] InspectionError),
}

/// A source and its thread.
struct Running {
    worker: Arc<Worker>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<String, Running>,
    /// Cameras that are being inspected.
    inspected: Vec<Weak<Worker>>,
    is_ending: bool,
}

/// The sources of a server.
pub struct Sources {
    archives: Arc<Archives>,
    /// The settings of sources that begin from now on.
    config: Mutex<SourcesConfig>,
    /// The addresses at which this server listens for RTSP.
    own: Arc<[SocketAddr]>,
    state: Mutex<State>,
}

/// A source and its status.
#[derive(Clone, Debug)]
pub struct Source {
    /// The source, as it was added.
    pub spec: SourceSpec,
    /// Its status.
    pub status: Status,
}

impl Source {
    fn of(worker: &Worker) -> Self {
        Self {
            spec: worker.spec.clone(),
            status: worker.status(),
        }
    }
}

impl Sources {
    /// Starts the sources of the file. `own`: the addresses at which this server listens for RTSP.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, or the host has no threads left.
    pub fn start(
        archives: Arc<Archives>,
        config: SourcesConfig,
        own: Vec<SocketAddr>,
    ) -> Result<Self, SourcesError> {
        let specs = match std::fs::read(&config.file) {
            Ok(bytes) => {
                parse(&bytes).map_err(|error| SourcesError::Content(config.file.clone(), error))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(SourcesError::File(config.file, error)),
        };
        let sources = Self {
            archives,
            config: Mutex::new(config),
            own: own.into(),
            state: Mutex::default(),
        };
        for spec in specs {
            let running = sources.begin(spec)?;
            let name = running.worker.spec.name.clone();
            sources.state().running.insert(name, running);
        }
        Ok(sources)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every source in the map has a thread, also after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> SourcesConfig {
        let config = self.config.lock();
        config.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over the rate, block size and timeout of a configuration for sources that begin from now on.
    pub fn reload(&self, config: &SourcesConfig) {
        let mut current = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        *current = SourcesConfig {
            file: current.file.clone(),
            ..config.clone()
        };
    }

    fn worker(&self, spec: SourceSpec) -> Result<Arc<Worker>, SourcesError> {
        let archives = Arc::clone(&self.archives);
        let own = Arc::clone(&self.own);
        let worker = Worker::new(spec, self.config(), archives, own);
        Ok(Arc::new(worker.map_err(SourcesError::Host)?))
    }

    /// Receives from a camera for some seconds without recording.
    ///
    /// # Errors
    /// The name is taken, the server ends, or the camera cannot be recorded.
    pub fn inspect(&self, spec: SourceSpec) -> Result<Inspection, InspectError> {
        let worker = {
            let mut state = self.state();
            if state.is_ending {
                return Err(SourcesError::Ending.into());
            }
            if state.running.contains_key(&spec.name) {
                return Err(SourcesError::Exists(spec.name).into());
            }
            let worker = self.worker(spec)?;
            state.inspected.retain(|of| of.strong_count() > 0);
            state.inspected.push(Arc::downgrade(&worker));
            worker
        };
        Ok(worker.inspect()?)
    }

    fn begin(&self, spec: SourceSpec) -> Result<Running, SourcesError> {
        let worker = self.worker(spec)?;
        let runner = Arc::clone(&worker);
        let thread = std::thread::Builder::new()
            .name("rtsp-source".to_owned())
            .spawn(move || runner.run())
            .map_err(SourcesError::Host)?;
        Ok(Running { worker, thread })
    }

    fn remember<'a>(
        &self,
        specs: impl Iterator<Item = &'a SourceSpec>,
    ) -> Result<(), SourcesError> {
        let bytes = encode(specs).map_err(io::Error::from);
        let file = self.config().file;
        let saved = bytes.and_then(|bytes| replace(&file, &bytes));
        saved.map_err(|error| SourcesError::File(file, error))
    }

    /// All sources, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Source> {
        let state = self.state();
        state
            .running
            .values()
            .map(|running| Source::of(&running.worker))
            .collect()
    }

    /// The source of that name.
    ///
    /// # Errors
    /// [`SourcesError::Missing`].
    pub fn show(&self, name: &str) -> Result<Source, SourcesError> {
        let state = self.state();
        let running = state.running.get(name);
        let running = running.ok_or_else(|| SourcesError::Missing(name.to_owned()))?;
        Ok(Source::of(&running.worker))
    }

    /// Adds a source to the file, and starts it.
    ///
    /// # Errors
    /// The name is taken, the limit is reached, the file cannot be written, or the host has no threads left.
    pub fn add(&self, spec: SourceSpec) -> Result<Source, SourcesError> {
        let mut state = self.state();
        if state.is_ending {
            return Err(SourcesError::Ending);
        }
        if state.running.contains_key(&spec.name) {
            return Err(SourcesError::Exists(spec.name));
        }
        if state.running.len() >= SOURCES_MAX {
            return Err(SourcesError::TooMany);
        }
        let others = state.running.values().map(|running| &running.worker.spec);
        self.remember(others.chain([&spec]))?;
        let name = spec.name.clone();
        match self.begin(spec) {
            Ok(running) => {
                let source = Source::of(&running.worker);
                state.running.insert(name, running);
                Ok(source)
            }
            Err(error) => {
                self.remember(state.running.values().map(|running| &running.worker.spec))?;
                Err(error)
            }
        }
    }

    /// Removes a source from the file, and waits for its end. Its recordings stay, and are durable on return.
    ///
    /// # Errors
    /// No source has that name, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<Source, SourcesError> {
        let mut state = self.state();
        if !state.running.contains_key(name) {
            return Err(SourcesError::Missing(name.to_owned()));
        }
        let others = state.running.values().map(|running| &running.worker.spec);
        self.remember(others.filter(|spec| spec.name != name))?;
        let running = state.running.remove(name);
        drop(state);
        let Running { worker, thread } =
            running.ok_or_else(|| SourcesError::Missing(name.to_owned()))?;
        worker.stop();
        if thread.join().is_err() {
            tracing::error!(source = name, "thread of a source panicked");
        }
        Ok(Source::of(&worker))
    }

    /// Ends all sources. They stay in the file. Their recordings are durable on return.
    pub fn close(&self) {
        let running = {
            let mut state = self.state();
            state.is_ending = true;
            for worker in state.inspected.iter().filter_map(Weak::upgrade) {
                worker.stop();
            }
            std::mem::take(&mut state.running)
        };
        for source in running.values() {
            source.worker.stop();
        }
        for (name, source) in running {
            if source.thread.join().is_err() {
                tracing::error!(source = name, "thread of a source panicked");
            }
        }
    }
}

impl Drop for Sources {
    /// Ends all sources of a server that failed to start.
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
