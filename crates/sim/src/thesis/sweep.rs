//! Many runs, on all processors. What is done is kept, so that a sweep can be stopped at any moment and gone on with
//! later.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Layout, Measured, NotAdmitted, Point, Source, Thesis, Times};
use crate::farm::{BandError, Load};

/// Why a sweep has no results.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A point asks for more pairs than there is room for.
    #[error("{pairs} pairs in layout {layout}: {error}")]
    Refused {
        /// The pairs.
        pairs: usize,
        /// The layout.
        layout: Layout,
        /// Why not.
        error: NotAdmitted,
    },
    /// Volumes have no room.
    #[error(transparent)]
    Band(#[from] BandError),
    /// Results could not be kept.
    #[error("{}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// How points are run.
pub struct Sweep<'a> {
    /// How many at a time.
    pub threads: usize,
    /// Where results are kept; those that are there already, of the same program, are not measured again.
    pub folder: Option<&'a Path>,
    /// Told how many of how many are done, from any thread.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// A result in a file. Another program may measure something else.
#[derive(Serialize, Deserialize)]
struct Kept {
    program: String,
    measured: Measured,
}

type SiteKey = (Layout, Times, u64);
type LoadKey = (Layout, Times, Source, u64);
type Cell<T> = Arc<OnceLock<Arc<T>>>;

/// What several points share, made when it is first needed.
#[derive(Default)]
struct Shared {
    sites: Mutex<HashMap<SiteKey, Cell<Thesis>>>,
    loads: Mutex<HashMap<LoadKey, Cell<Load>>>,
}

fn cell<K: Eq + Hash, T>(cells: &Mutex<HashMap<K, Cell<T>>>, key: K) -> Cell<T> {
    let mut cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(cells.entry(key).or_default())
}

impl Shared {
    fn site(&self, point: &Point) -> Result<Arc<Thesis>, BandError> {
        let cell = cell(&self.sites, (point.layout, point.times, point.seed));
        if let Some(site) = cell.get() {
            return Ok(Arc::clone(site));
        }
        let site = Arc::new(Thesis::new(point.layout, point.times, point.seed)?);
        Ok(Arc::clone(cell.get_or_init(|| site)))
    }

    fn load(&self, point: &Point, site: &Thesis) -> Arc<Load> {
        let key = (point.layout, point.times, point.source, point.seed);
        let cell = cell(&self.loads, key);
        let load = cell.get_or_init(|| Arc::new(site.cello(&point.source.period(), point.seed)));
        Arc::clone(load)
    }

    fn run(&self, point: &Point) -> Result<Measured, SweepError> {
        let site = self.site(point)?;
        let load = self.load(point, &site);
        point
            .run(&site, &load)
            .map_err(|error| SweepError::Refused {
                pairs: point.pairs,
                layout: point.layout,
                error,
            })
    }
}

impl Sweep<'_> {
    /// The results of points, in their order.
    ///
    /// # Errors
    /// The first that has none.
    pub fn run(&self, points: &[Point]) -> Result<Vec<Measured>, SweepError> {
        let program = program();
        let shared = Shared::default();
        let results = self.each(points.len(), |index| {
            self.measure(&shared, &points[index], &program)
        });
        results.into_iter().collect()
    }

    /// Does so many things, as many at a time as there are threads, and tells how many are done.
    pub(super) fn each<T: Send + Sync>(
        &self,
        count: usize,
        work: impl Fn(usize) -> T + Sync,
    ) -> Vec<T> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Vec<OnceLock<T>> = (0..count).map(|_| OnceLock::new()).collect();
        let run = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(result) = results.get(index) else {
                    return;
                };
                // Each index is taken once.
                let _ = result.set(work(index));
                (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, count);
            }
        };
        std::thread::scope(|scope| {
            (1..self.threads.max(1)).for_each(|_| drop(scope.spawn(run)));
            run();
        });
        results
            .into_iter()
            .filter_map(OnceLock::into_inner)
            .collect()
    }

    fn measure(
        &self,
        shared: &Shared,
        point: &Point,
        program: &str,
    ) -> Result<Measured, SweepError> {
        let path = self.folder.map(|folder| folder.join(point.file_name()));
        if let Some(measured) = path.as_deref().and_then(|path| kept(path, program)) {
            return Ok(measured);
        }
        let measured = shared.run(point)?;
        if let Some(path) = path {
            keep(&path, program, &measured).map_err(|error| SweepError::Io { path, error })?;
        }
        Ok(measured)
    }
}

/// What tells this program from others that may measure something else.
fn program() -> String {
    let mut hasher = DefaultHasher::new();
    let bytes = std::env::current_exe().and_then(std::fs::read);
    bytes.unwrap_or_default().hash(&mut hasher);
    format!("{} {:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())
}

/// A result that this program has kept. One that cannot be read is measured again.
fn kept(path: &Path, program: &str) -> Option<Measured> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (kept.program == program).then_some(kept.measured)
}

/// Keeps a result, whole or not at all.
fn keep(path: &Path, program: &str, measured: &Measured) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let kept = Kept {
        program: program.to_owned(),
        measured: measured.clone(),
    };
    let unfinished = path.with_extension("part");
    std::fs::write(&unfinished, serde_json::to_vec_pretty(&kept)?)?;
    std::fs::rename(unfinished, path)
}
