//! Volumes that are made, written, grown, shrunk and deleted while the power may be cut: afterwards their
//! set, sizes and contents must be those of a permitted state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use engine::pool::{Placement, Pool};
use engine::volume_io::Client;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use sched::units::Bytes;

use super::past::{Kind, PossibleStates, Tally};
use super::{EXTENT, SECTOR, bytes_of, sectors_of};
use testkit::disks::volume;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Six extents. Volumes may end within an extent.
const SECTORS_MAX: usize = 6 * EXTENT as usize / SECTOR;

/// A volume between creation and deletion.
#[derive(Clone, Debug)]
pub(crate) struct VolumeState {
    /// Unique among all volumes.
    id: u64,
    /// The value of each sector.
    sectors: Arc<Vec<u64>>,
}

/// All volumes at one time.
pub(crate) type Volumes = BTreeMap<&'static str, VolumeState>;

/// A change of a volume, with sizes in sectors.
enum Change {
    Create { sectors: usize },
    Write { at: usize, values: Vec<u64> },
    Grow { sectors: usize },
    Shrink { sectors: usize },
    Delete,
}

impl Change {
    fn kind(&self) -> Kind {
        match self {
            Self::Create { .. } => Kind::Create,
            Self::Write { .. } => Kind::Write,
            Self::Grow { .. } => Kind::Grow,
            Self::Shrink { .. } => Kind::Shrink,
            Self::Delete => Kind::Delete,
        }
    }

    /// The volumes after the change; `id` is for a new one.
    fn applied(&self, mut to: Volumes, name: &'static str, id: u64) -> Volumes {
        let resized = |life: &VolumeState, sectors| {
            let mut all = Vec::clone(&life.sectors);
            all.resize(sectors, 0);
            VolumeState {
                id: life.id,
                sectors: Arc::new(all),
            }
        };
        let life = match (self, to.remove(name)) {
            (Self::Create { sectors }, None) => VolumeState {
                id,
                sectors: Arc::new(vec![0; *sectors]),
            },
            (Self::Write { at, values }, Some(mut life)) => {
                let all = Arc::make_mut(&mut life.sectors);
                all[*at..*at + values.len()].copy_from_slice(values);
                life
            }
            (Self::Grow { sectors } | Self::Shrink { sectors }, Some(life)) => {
                resized(&life, *sectors)
            }
            (Self::Delete, Some(_)) => return to,
            (_, life) => panic!("{life:?} is not what it was chosen for"),
        };
        to.insert(name, life);
        to
    }

    fn make(&self, pool: &Pool, client: &Client, name: &str) {
        let bytes = |sectors: usize| Bytes((sectors * SECTOR) as u64);
        match self {
            Self::Create { sectors } => drop(volume(pool, name, bytes(*sectors).0)),
            Self::Write { at, values } => {
                let volume = pool.open_volume(name).unwrap();
                let data = bytes_of(values);
                client.write_at(&volume, bytes(*at), &data).unwrap();
                client.flush(&volume).unwrap();
            }
            Self::Grow { sectors } => {
                let anywhere = Placement::default();
                pool.grow(name, bytes(*sectors), &anywhere).unwrap();
            }
            Self::Shrink { sectors } => {
                pool.shrink(name, bytes(*sectors)).unwrap();
            }
            Self::Delete => pool.delete_volume(name).unwrap(),
        }
    }
}

/// Makes, changes and deletes the volumes.
pub(crate) struct Owner<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) client: Client,
    pub(crate) past: &'a Mutex<PossibleStates<Volumes>>,
    pub(crate) tally: &'a Tally,
    pub(crate) rng: StdRng,
    /// A number that has not been used.
    pub(crate) next: u64,
}

impl Owner<'_> {
    pub(crate) fn step(&mut self) {
        let name = *NAMES.choose(&mut self.rng).unwrap();
        let before = self.past.lock().unwrap().last().clone();
        let sectors = before.get(name).map(|life| life.sectors.len());
        let change = self.choose(sectors);
        self.next += 1;
        let after = change.applied(before, name, self.next);
        // Recorded before the call: the power may be cut during it.
        self.past.lock().unwrap().begin(after);
        change.make(self.pool, &self.client, name);
        self.past.lock().unwrap().end();
        self.tally.did(change.kind(), 1);
    }

    /// A random change that is possible for a volume of this size, or for none.
    fn choose(&mut self, sectors: Option<usize>) -> Change {
        let rng = &mut self.rng;
        let Some(sectors) = sectors else {
            let sectors = rng.random_range(1..=SECTORS_MAX);
            return Change::Create { sectors };
        };
        match rng.random_range(0..10) {
            0..2 if sectors < SECTORS_MAX => Change::Grow {
                sectors: rng.random_range(sectors + 1..=SECTORS_MAX),
            },
            2..4 if sectors > 1 => Change::Shrink {
                sectors: rng.random_range(1..sectors),
            },
            4 => Change::Delete,
            _ => {
                let at = rng.random_range(0..sectors);
                let count = rng.random_range(1..40).min(sectors - at);
                let first = self.next + 1;
                self.next += count as u64;
                Change::Write {
                    at,
                    values: (first..=self.next).collect(),
                }
            }
        }
    }
}

/// Asserts that the pool matches one of the states: the same volumes with the same sizes, and in each sector
/// a value that it had in any of the states since the volume was made.
pub(crate) fn verify(pool: &Pool, client: &Client, states: &[Volumes]) {
    let found = found(pool, client);
    let is_it = |index: &usize| {
        let state = &states[*index];
        let sizes = |(name, life): (&&str, &VolumeState)| {
            found
                .get(*name)
                .is_some_and(|all| all.len() == life.sectors.len())
        };
        state.len() == found.len() && state.iter().all(sizes)
    };
    let alike: Vec<usize> = (0..states.len()).filter(is_it).collect();
    let sizes: BTreeMap<_, _> = found.iter().map(|(name, all)| (name, all.len())).collect();
    assert!(!alike.is_empty(), "{sizes:?} have never been at once");
    let strange: Vec<_> = alike
        .iter()
        .map(|&index| strange(states, index, &found))
        .collect();
    assert!(
        strange.iter().any(Option::is_none),
        "{sizes:?} hold what they never held: {strange:?}"
    );
}

/// The contents of all volumes except the one that exists from the beginning.
fn found(pool: &Pool, client: &Client) -> BTreeMap<String, Vec<u64>> {
    let names = pool.volumes().into_iter().map(|info| info.name);
    names
        .filter(|name| name != "v")
        .map(|name| {
            let volume = pool.open_volume(&name).unwrap();
            (name, sectors_of(client, &volume))
        })
        .collect()
}

/// A sector whose value contradicts the state at `index`, and that value.
fn strange(
    states: &[Volumes],
    index: usize,
    found: &BTreeMap<String, Vec<u64>>,
) -> Option<(String, usize, u64)> {
    for (name, all) in found {
        for (at, &value) in all.iter().enumerate() {
            let id = states[index][name.as_str()].id;
            let held = |state: &Volumes| {
                let life = state.get(name.as_str()).filter(|life| life.id == id)?;
                life.sectors.get(at).copied()
            };
            let (before, since) = states.split_at(index);
            let mut near = before.iter().rev().map_while(held);
            let mut later = since.iter().map_while(held);
            if !near.any(|is| is == value) && !later.any(|is| is == value) {
                return Some((name.clone(), at, value));
            }
        }
    }
    None
}
