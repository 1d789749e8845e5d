//! The sources of a server: cameras that are pulled from, each by a thread of its own, and the file that remembers
//! them.
//!
//! # The file
//!
//! JSON, read when the server starts and replaced whole, durably, before a change is answered. It has the cameras'
//! passwords, as Digest needs them as they are, so only its owner may read it. It is no part of the pool: disks that
//! are sold or lent must not take passwords along, and a pool that is opened elsewhere must not begin to call cameras.

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
use crate::camera::source::{Address, Lower, SourceSpec, Status, Worker};
use crate::rtsp::tls::Trusted;

/// The most sources of a server: each has a thread.
pub const SOURCES_MAX: usize = 1_024;

/// How sources are pulled from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcesConfig {
    /// Where they are remembered.
    pub file: PathBuf,
    /// The rate that is reserved for one that does not say what it needs.
    pub rate: BytesPerSecond,
    /// The size of the blocks of new archives.
    pub block: Bytes,
    /// A camera from which nothing has come for so long is connected to anew.
    pub timeout: Nanos,
}

/// Why there is no such source.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The name is taken.
    #[error("there is a source {0:?} already")]
    Exists(String),
    /// There is none of that name.
    #[error("there is no source {0:?}")]
    Missing(String),
    /// No more can be pulled from.
    #[error("there are {SOURCES_MAX} sources, and no more can be had")]
    Many,
    /// The server ends.
    #[error("the server is ending")]
    Ending,
    /// They cannot be remembered.
    #[error("sources cannot be kept in {0}: {1}")]
    File(PathBuf, io::Error),
    /// What is remembered makes no sense.
    #[error("{0} is no file of sources: {1}")]
    Content(PathBuf, String),
    /// Memory or threads.
    #[error("a source cannot be pulled from: {0}")]
    Host(io::Error),
}

/// A source, as it is remembered.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    name: String,
    url: String,
    volume: String,
    udp: bool,
    rate_bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificates: Option<String>,
}

impl From<&SourceSpec> for Remembered {
    fn from(spec: &SourceSpec) -> Self {
        let plain = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let who = spec.address.credentials().map_or(String::new(), |of| {
            format!("{}:{}@", plain(&of.user), plain(&of.password))
        });
        Self {
            name: spec.name.clone(),
            url: spec
                .address
                .shown()
                .replacen("://", &format!("://{who}"), 1),
            volume: spec.volume.clone(),
            udp: spec.lower == Lower::Udp,
            rate_bytes_per_second: spec.rate.map(|rate| rate.0),
            certificates: spec.trusted.as_ref().map(|of| of.pem().to_owned()),
        }
    }
}

impl TryFrom<Remembered> for SourceSpec {
    type Error = String;

    fn try_from(of: Remembered) -> Result<Self, String> {
        let address = Address::parse(&of.url);
        let trusted = of.certificates.as_deref().map(Trusted::parse).transpose();
        Ok(Self {
            address: address.map_err(|error| format!("the URL of {:?}: {error}", of.name))?,
            trusted: trusted
                .map_err(|error| format!("the certificates of {:?}: {error}", of.name))?,
            name: of.name,
            volume: of.volume,
            lower: if of.udp { Lower::Udp } else { Lower::Tcp },
            rate: of.rate_bytes_per_second.map(BytesPerSecond),
        })
    }
}

/// What a file of sources says.
///
/// # Errors
/// When it makes no sense; the text is not repeated, as there are passwords in it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<SourceSpec>, String> {
    let remembered: Vec<Remembered> = serde_json::from_slice(bytes)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
    let specs: Vec<_> = remembered
        .into_iter()
        .map(SourceSpec::try_from)
        .collect::<Result<_, _>>()?;
    if specs.len() > SOURCES_MAX {
        return Err(format!(
            "it has {}, and {SOURCES_MAX} are the most",
            specs.len()
        ));
    }
    let mut names = BTreeSet::new();
    match specs.iter().find(|spec| !names.insert(&spec.name)) {
        Some(twice) => Err(format!("{:?} is in it twice", twice.name)),
        None => Ok(specs),
    }
}

/// A file of these sources.
pub(crate) fn written<'a>(
    specs: impl Iterator<Item = &'a SourceSpec>,
) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(&specs.map(Remembered::from).collect::<Vec<_>>())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Replaces a file, durably, by one that only its owner may read.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    // What is left of one that was not finished may have other permissions.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    replace_by(&beside, path, bytes).inspect_err(|_| {
        // Nobody finishes it.
        let _ = std::fs::remove_file(&beside);
    })
}

/// What is to be a file of that name.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// The same, by a file beside it, which stays if that fails.
fn replace_by(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(beside, path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A source that is pulled from.
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
    /// Where this server itself is.
    own: Arc<[SocketAddr]>,
    state: Mutex<State>,
}

/// A source, what it does and has done.
#[derive(Clone, Debug)]
pub struct Source {
    /// What is pulled.
    pub spec: SourceSpec,
    /// What came of it.
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
    /// Those that are remembered, each pulled from at once; `own` is where this server itself is.
    ///
    /// # Errors
    /// When the file cannot be read or makes no sense, or the host has no threads for them.
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
        // Whatever is in it runs.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, spec: SourceSpec) -> Result<Running, SourcesError> {
        let archives = Arc::clone(&self.archives);
        let own = Arc::clone(&self.own);
        let worker =
            Worker::new(spec, self.config.clone(), archives, own).map_err(SourcesError::Host)?;
        let worker = Arc::new(worker);
        let pulling = Arc::clone(&worker);
        let thread = std::thread::Builder::new()
            .name("rtsp-source".to_owned())
            .spawn(move || pulling.run())
            .map_err(SourcesError::Host)?;
        Ok(Running { worker, thread })
    }

    fn remember<'a>(
        &self,
        specs: impl Iterator<Item = &'a SourceSpec>,
    ) -> Result<(), SourcesError> {
        let bytes = written(specs).map_err(io::Error::from);
        let kept = bytes.and_then(|bytes| replace(&self.config.file, &bytes));
        kept.map_err(|error| SourcesError::File(self.config.file.clone(), error))
    }

    /// All of them, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Source> {
        let state = self.state();
        state
            .running
            .values()
            .map(|of| Source::of(&of.worker))
            .collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn show(&self, name: &str) -> Result<Source, SourcesError> {
        let state = self.state();
        let running = state.running.get(name);
        let running = running.ok_or_else(|| SourcesError::Missing(name.to_owned()))?;
        Ok(Source::of(&running.worker))
    }

    /// Remembers one more, and pulls from it.
    ///
    /// # Errors
    /// When its name is taken, its volume is not there, or it cannot be remembered.
    pub fn add(&self, spec: SourceSpec) -> Result<Source, SourcesError> {
        let mut state = self.state();
        if state.is_ending {
            return Err(SourcesError::Ending);
        }
        if state.running.contains_key(&spec.name) {
            return Err(SourcesError::Exists(spec.name));
        }
        if state.running.len() >= SOURCES_MAX {
            return Err(SourcesError::Many);
        }
        let others = state.running.values().map(|of| &of.worker.spec);
        self.remember(others.chain([&spec]))?;
        let name = spec.name.clone();
        match self.begin(spec) {
            Ok(running) => {
                let source = Source::of(&running.worker);
                state.running.insert(name, running);
                Ok(source)
            }
            Err(error) => {
                self.remember(state.running.values().map(|of| &of.worker.spec))?;
                Err(error)
            }
        }
    }

    /// Ends one and forgets it; what it has recorded stays, and is durable then.
    ///
    /// # Errors
    /// When there is none of that name, or it cannot be forgotten.
    pub fn remove(&self, name: &str) -> Result<Source, SourcesError> {
        let mut state = self.state();
        if !state.running.contains_key(name) {
            return Err(SourcesError::Missing(name.to_owned()));
        }
        let others = state.running.values().map(|of| &of.worker.spec);
        self.remember(others.filter(|spec| spec.name != name))?;
        let running = state.running.remove(name);
        drop(state);
        let Running { worker, thread } =
            running.ok_or_else(|| SourcesError::Missing(name.to_owned()))?;
        worker.stop();
        if thread.join().is_err() {
            tracing::error!(source = name, "the thread of a source has failed");
        }
        Ok(Source::of(&worker))
    }

    /// Ends all; they are remembered. What they have recorded is durable then.
    pub fn close(&self) {
        let running = {
            let mut state = self.state();
            state.is_ending = true;
            std::mem::take(&mut state.running)
        };
        for of in running.values() {
            of.worker.stop();
        }
        for (name, of) in running {
            if of.thread.join().is_err() {
                tracing::error!(source = name, "the thread of a source has failed");
            }
        }
    }
}

impl Drop for Sources {
    /// Ends all, where a server that could not be started has not.
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
    fn what_is_remembered_is_what_was_asked_and_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sources.json");
        let spec = SourceSpec {
            name: "a".to_owned(),
            address: Address::parse("rtsp://u%2F:p%40%22@[::1]:5/x?y=1").unwrap(),
            volume: "v \"".to_owned(),
            lower: Lower::Udp,
            rate: Some(BytesPerSecond(7)),
            trusted: None,
        };
        let other = SourceSpec {
            name: "b".to_owned(),
            address: Address::parse("rtsp://h/").unwrap(),
            lower: Lower::Tcp,
            rate: None,
            ..spec.clone()
        };
        std::fs::write(beside(&path), "left over").unwrap();
        replace(&path, &written([&spec, &other].into_iter()).unwrap()).unwrap();
        assert_eq!(
            parse(&std::fs::read(&path).unwrap()),
            Ok(vec![spec.clone(), other])
        );
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // What cannot be finished leaves nothing behind.
        let taken = folder.path().join("taken.json");
        std::fs::create_dir(&taken).unwrap();
        replace(&taken, b"[]").unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let twice = written([&spec, &spec].into_iter()).unwrap();
        assert_eq!(parse(&twice), Err("\"a\" is in it twice".to_owned()));
        let wrong = parse(b"[{\"name\": \"secret\" }]").unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }
}
