//! Many runs, on all processors. Results are kept, so that a sweep can be stopped at any moment and continued
//! later.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A result could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct KeepError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub error: io::Error,
}

/// Options of many runs.
pub struct Sweep<'a> {
    /// Number of threads.
    pub threads: usize,
    /// Folder of results. Results of the same program that are there already are not measured again.
    pub folder: Option<&'a Path>,
    /// Told how many of how many are done, from any thread.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// A result in a file. Another program may measure something else, and so may other input.
#[derive(Serialize, Deserialize)]
struct Kept<P, T> {
    program: P,
    input: P,
    measured: T,
}

impl Sweep<'_> {
    /// Does so many things, as many at a time as there are threads, and tells how many are done.
    pub(crate) fn each<T: Send + Sync>(
        &self,
        count: usize,
        work: impl Fn(usize) -> T + Sync,
    ) -> Vec<T> {
        let Ok(results) = self.try_each(count, |index| Ok::<_, Infallible>(work(index)));
        results
    }

    /// As `each`, for work that may fail. No work is begun after a failure.
    ///
    /// # Errors
    /// The first error, in order of the items.
    pub(crate) fn try_each<T: Send + Sync, E: Send + Sync>(
        &self,
        count: usize,
        work: impl Fn(usize) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let has_failed = AtomicBool::new(false);
        let results: Vec<OnceLock<Result<T, E>>> = (0..count).map(|_| OnceLock::new()).collect();
        let run = || {
            while !has_failed.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(result) = results.get(index) else {
                    return;
                };
                let worked = work(index);
                has_failed.fetch_or(worked.is_err(), Ordering::Relaxed);
                // Each index is taken once.
                let _ = result.set(worked);
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

    /// The result of that name: the kept one for this input, or the value of `work`, which is kept.
    ///
    /// # Errors
    /// That of the work, or of keeping its value.
    pub(crate) fn kept<T: Serialize + DeserializeOwned, E: From<KeepError>>(
        &self,
        name: &str,
        input: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(path) = self.folder.map(|folder| folder.join(name)) else {
            return work();
        };
        if let Some(measured) = kept(&path, input) {
            return Ok(measured);
        }
        let measured = work()?;
        keep(&path, input, &measured).map_err(|error| KeepError { path, error })?;
        Ok(measured)
    }
}

/// Identity of this program, against others that may measure something else.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        let bytes = std::env::current_exe().and_then(std::fs::read);
        bytes.unwrap_or_default().hash(&mut hasher);
        format!("{} {:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())
    })
}

/// A result that this program has kept. One that cannot be read is measured again.
fn kept<T: DeserializeOwned>(path: &Path, input: &str) -> Option<T> {
    let kept: Kept<String, T> = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (kept.program == program() && kept.input == input).then_some(kept.measured)
}

/// Keeps a result, whole or not at all.
fn keep<T: Serialize>(path: &Path, input: &str, measured: &T) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let kept = Kept {
        program: program(),
        input,
        measured,
    };
    // A name of this process: another one may be writing the same result.
    let unfinished = path.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&unfinished, serde_json::to_vec_pretty(&kept)?)?;
    std::fs::rename(unfinished, path)
}

/// The loads at which something is measured: every third while there is much room, each of the last ones.
pub(crate) fn steps(most: usize) -> Vec<usize> {
    const EACH: usize = 5;
    let each_from = most.saturating_sub(EACH - 1).max(1);
    let mut steps: Vec<usize> = (1..each_from).step_by(3).collect();
    steps.extend(each_from..=most);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_result_is_kept_for_its_input_only() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let sweep = Sweep {
            threads: 1,
            folder: Some(folder.path()),
            progress: &|_, _| {},
        };
        let run = |input: &str, result: u32| {
            let kept: Result<u32, KeepError> = sweep.kept("one.json", input, || Ok(result));
            kept.expect("it can be kept")
        };
        assert_eq!(run("a", 1), 1);
        assert_eq!(run("a", 2), 1);
        assert_eq!(run("b", 3), 3);
        std::fs::write(folder.path().join("one.json"), "{").expect("it can be damaged");
        assert_eq!(run("b", 4), 4);
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        let begun = AtomicUsize::new(0);
        let sweep = Sweep {
            threads: 1,
            folder: None,
            progress: &|_, _| {},
        };
        let result: Result<Vec<usize>, usize> = sweep.try_each(100, |index| {
            begun.fetch_add(1, Ordering::Relaxed);
            if index == 3 { Err(index) } else { Ok(index) }
        });
        assert_eq!(result, Err(3));
        assert_eq!(begun.into_inner(), 4);
    }
}
