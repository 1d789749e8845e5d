//! The sources of a server, each with a thread of its own, and the file that remembers them.
//!
//! # The file
//!
//! JSON, read when the server starts. Each change replaces the whole file durably before it is answered. The file
//! contains the cameras' passwords in clear, because Digest needs them, so only its owner may read it. It is not part
//! of the pool: disks that are sold or lent must not contain passwords, and a pool that is opened on another host must
//! not start to pull cameras there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sched::units::{Bytes, BytesPerSecond, Nanos};
use serde::{Deserialize, Serialize};

use crate::archive::archives::Archives;
use crate::camera::source::{Address, LowerTransport, SourceSpec, Status, Worker};
use crate::rtsp::tls::TrustedCertificates;

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

/// A source in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceRecord {
    name: String,
    url: String,
    volume: String,
    udp: bool,
    rate_bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificates: Option<String>,
}

impl From<&SourceSpec> for SourceRecord {
    fn from(spec: &SourceSpec) -> Self {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let login = spec.address.credentials().map_or(String::new(), |login| {
            format!("{}:{}@", encode(&login.user), encode(&login.password))
        });
        Self {
            name: spec.name.clone(),
            url: spec
                .address
                .shown()
                .replacen("://", &format!("://{login}"), 1),
            volume: spec.volume.clone(),
            udp: spec.lower == LowerTransport::Udp,
            rate_bytes_per_second: spec.rate.map(|rate| rate.0),
            certificates: spec
                .trusted
                .as_ref()
                .map(|trusted| trusted.pem().to_owned()),
        }
    }
}

impl TryFrom<SourceRecord> for SourceSpec {
    type Error = String;

    fn try_from(record: SourceRecord) -> Result<Self, String> {
        let address = Address::parse(&record.url);
        let trusted = record
            .certificates
            .as_deref()
            .map(TrustedCertificates::parse)
            .transpose();
        Ok(Self {
            address: address
                .map_err(|error| format!("URL of source {:?}: {error}", record.name))?,
            trusted: trusted
                .map_err(|error| format!("certificates of source {:?}: {error}", record.name))?,
            name: record.name,
            volume: record.volume,
            lower: if record.udp {
                LowerTransport::Udp
            } else {
                LowerTransport::Tcp
            },
            rate: record.rate_bytes_per_second.map(BytesPerSecond),
        })
    }
}

/// Parses the file.
///
/// # Errors
/// The place of the error. The text is not repeated, because it contains passwords.
fn parse(bytes: &[u8]) -> Result<Vec<SourceSpec>, String> {
    let records: Vec<SourceRecord> = serde_json::from_slice(bytes)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
    let specs: Vec<_> = records
        .into_iter()
        .map(SourceSpec::try_from)
        .collect::<Result<_, _>>()?;
    if specs.len() > SOURCES_MAX {
        return Err(format!(
            "it has {} sources; the maximum is {SOURCES_MAX}",
            specs.len()
        ));
    }
    let mut names = BTreeSet::new();
    match specs.iter().find(|spec| !names.insert(&spec.name)) {
        Some(twice) => Err(format!("source {:?} is in it twice", twice.name)),
        None => Ok(specs),
    }
}

/// The content of the file.
fn encode<'a>(specs: impl Iterator<Item = &'a SourceSpec>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(&specs.map(SourceRecord::from).collect::<Vec<_>>())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Replaces a file durably. Only its owner may read it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    // A file that an interrupted attempt left may have other permissions.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    replace_by(&temporary, path, bytes).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Writes `temporary` and renames it to `path`. If that fails, `temporary` may stay.
fn replace_by(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A source and its thread.
struct Running {
    worker: Arc<Worker>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<String, Running>,
    is_ending: bool,
}

/// The sources of a server.
pub struct Sources {
    archives: Arc<Archives>,
    config: SourcesConfig,
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
            config,
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

    fn begin(&self, spec: SourceSpec) -> Result<Running, SourcesError> {
        let archives = Arc::clone(&self.archives);
        let own = Arc::clone(&self.own);
        let worker =
            Worker::new(spec, self.config.clone(), archives, own).map_err(SourcesError::Host)?;
        let worker = Arc::new(worker);
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
        let saved = bytes.and_then(|bytes| replace(&self.config.file, &bytes));
        saved.map_err(|error| SourcesError::File(self.config.file.clone(), error))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn file_holds_the_sources_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sources.json");
        let spec = SourceSpec {
            name: "a".to_owned(),
            address: Address::parse("rtsp://u%2F:p%40%22@[::1]:5/x?y=1").unwrap(),
            volume: "v \"".to_owned(),
            lower: LowerTransport::Udp,
            rate: Some(BytesPerSecond(7)),
            trusted: None,
        };
        let other = SourceSpec {
            name: "b".to_owned(),
            address: Address::parse("rtsp://h/").unwrap(),
            lower: LowerTransport::Tcp,
            rate: None,
            ..spec.clone()
        };
        std::fs::write(temporary(&path), "left over").unwrap();
        replace(&path, &encode([&spec, &other].into_iter()).unwrap()).unwrap();
        assert_eq!(
            parse(&std::fs::read(&path).unwrap()),
            Ok(vec![spec.clone(), other])
        );
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // A replacement that fails leaves no temporary file.
        let taken = folder.path().join("taken.json");
        std::fs::create_dir(&taken).unwrap();
        replace(&taken, b"[]").unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let twice = encode([&spec, &spec].into_iter()).unwrap();
        assert_eq!(parse(&twice), Err("source \"a\" is in it twice".to_owned()));
        let wrong = parse(b"[{\"name\": \"secret\" }]").unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }
}
