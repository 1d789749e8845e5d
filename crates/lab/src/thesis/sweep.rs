//! The points of figures, measured: what several of them share is made once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Layout, Measured, NotAdmitted, Point, Source, Thesis, Times};
use crate::farm::{BandError, Load};
use crate::sweep::{KeepError, Sweep};

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
    #[error(transparent)]
    Keep(#[from] KeepError),
}

type SiteKey = (Layout, Times, u64);
type LoadKey = (Layout, Times, Source, u64);
type Cell<T> = Arc<OnceLock<Arc<T>>>;

/// State shared by several points, made when it is first needed.
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

    fn run(
        &self,
        point: &Point,
        run: fn(&Point, &Thesis, &Load) -> Result<Measured, NotAdmitted>,
    ) -> Result<Measured, SweepError> {
        let site = self.site(point)?;
        let load = self.load(point, &site);
        run(point, &site, &load).map_err(|error| SweepError::Refused {
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
        let shared = Shared::default();
        self.try_each(points.len(), |index| {
            let point = &points[index];
            self.kept(&point.file_name(), "", || shared.run(point, Point::run))
        })
    }

    /// As [`Self::run`], with G-SCAN in place of the points' policies.
    ///
    /// # Errors
    /// The first that has none.
    pub fn run_by_g_scan(&self, points: &[Point]) -> Result<Vec<Measured>, SweepError> {
        let shared = Shared::default();
        self.try_each(points.len(), |index| {
            let point = &points[index];
            let name = format!("g-scan-{}", point.file_name());
            self.kept(&name, "", || shared.run(point, Point::run_by_g_scan))
        })
    }
}
