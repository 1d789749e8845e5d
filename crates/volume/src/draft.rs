//! A transaction that has been planned: what it writes, and what takes effect with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dirty::{Mark, Shared};
use crate::extent::Extent;
use crate::grade::Grade;
use crate::image::NodeAt;
use crate::log::LogState;
use crate::map::VolumeMap;
use crate::moving::Move;
use crate::node::Volume;
use crate::ondisk::Owner;
use crate::place::{Place, VolumeId};
use crate::transaction::Step;

/// A transaction that has been handed out.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) steps: Vec<Step>,
    /// The log when it is done.
    pub(crate) log: LogState,
    /// Taken from the free extents, for metadata and for volumes.
    pub(crate) taken_for_log: Vec<Place>,
    pub(crate) taken: Vec<Place>,
    /// With a checkpoint: full nodes in their new places, and all extents that the table refers to.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Marks that become durable, and the extents that were taken from the dirty ones for it.
    pub(crate) settled: Vec<(Arc<Shared>, Mark, Vec<u32>)>,
    pub(crate) effect: Effect,
    /// The superblocks' generation and owner when it is done.
    pub(crate) generation: u64,
    pub(crate) owner: Owner,
}

#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    pub(crate) nodes: Vec<(VolumeId, NodeAt)>,
    pub(crate) list_at: Option<(u32, NodeAt)>,
    pub(crate) refers_to: BTreeSet<Place>,
}

/// A change that takes effect at the commit.
#[derive(Debug)]
pub(crate) enum Effect {
    None,
    Started,
    Stopped,
    Create(VolumeId, Volume),
    Map(VolumeId, Arc<VolumeMap>, Vec<Arc<Extent>>),
    Rename(VolumeId, String),
    Delete(VolumeId),
    Moved(Move),
    Bits(Vec<VolumeId>),
    Grades(Vec<(Place, Grade)>),
}
