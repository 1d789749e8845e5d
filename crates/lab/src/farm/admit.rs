//! Admission of streams and reserved best effort to all disks of a farm, or to none.

use std::ops::Range;

use sched::admission::{Admission, Refusal};
use sched::delta_l::{DeltaL, delta_l, delta_l_published};
use sched::disk::TaskKind;
use sched::predict::Predictor;
use sched::request::Class;
use sched::task::{TaskError, TaskId, TaskParams};
use sched::units::{Nanos, Sector};

use super::track::Swept;
use super::{Disks, Reserved, Stream};

/// A task on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DiskTask {
    pub(super) id: TaskId,
    pub(super) params: TaskParams,
    pub(super) kind: TaskKind,
}

/// A lane of a stream on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamTask {
    /// Class of its requests.
    pub(super) class: Class,
    pub(super) stream: usize,
    /// The lane of the stream's track.
    pub(super) lane: usize,
}

/// Lanes of one period, which a task serves in sweeps.
#[derive(Clone, Debug)]
pub(super) struct Members {
    task: TaskId,
    period: Nanos,
    count: u32,
    /// All their requests together.
    each_sum: Nanos,
    most: Swept,
}

impl Members {
    fn with(self, swept: &Swept) -> Self {
        Self {
            count: self.count + 1,
            each_sum: self.each_sum + swept.each,
            most: self.most.or(swept),
            ..self
        }
    }

    /// Parameters of their task on a disk where all streams lie within these sectors.
    fn params(
        &self,
        within: Option<&Range<Sector>>,
        predictor: &Predictor,
    ) -> Result<TaskParams, TaskError> {
        let anywhere = Sector(0)..Sector(predictor.capacity().get());
        let within = within.unwrap_or(&anywhere);
        let (count, most) = (u64::from(self.count), &self.most);
        let seeks = predictor.seeks_of_sweep(within, &most.within, count, most.cylinders);
        let way = predictor.way_over(within);
        let params = TaskParams::new(self.each_sum + seeks, self.period)?;
        Ok(params.in_pieces(most.each + way + way))
    }
}

/// Streams of a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct OnDisk {
    pub(super) admission: Admission,
    /// Sectors of streams, if they reserve only the time that they need there.
    pub(super) within: Option<Range<Sector>>,
    /// Slack that must remain for the way back from anywhere.
    way_back: Nanos,
    /// The periods of streams, where they are served in sweeps.
    pub(super) sweeps: Option<Vec<Members>>,
    pub(super) tasks: Vec<DiskTask>,
    pub(super) streams: Vec<StreamTask>,
    /// The task of a best-effort source with a reservation.
    pub(super) servers: Vec<(usize, TaskId)>,
}

/// Streams and reservations that all disks have room for.
#[derive(Clone, Debug)]
pub struct Admitted {
    predictor: Predictor,
    pub(super) on_disk: Vec<OnDisk>,
    streams: Vec<Stream>,
    next_task: u64,
}

/// Why a stream or a reservation was not admitted.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// It needs more than a whole disk.
    #[error("disk {disk}: {error}")]
    Task {
        /// The first such disk.
        disk: usize,
        /// Why.
        error: TaskError,
    },
    /// A disk has no room for it beside what was admitted before.
    #[error("disk {disk}: {refusal}")]
    Refused {
        /// The first such disk.
        disk: usize,
        /// Why.
        refusal: Refusal,
    },
    /// A disk would not have the time to bring its arm back to where streams lie.
    #[error(
        "disk {disk}: the slack would fall to {delta_l}, less than the way back to the sectors of streams ({way_back})"
    )]
    NoWayBack {
        /// The first such disk.
        disk: usize,
        /// Delta-L with it.
        delta_l: Nanos,
        /// The longest way.
        way_back: Nanos,
    },
}

impl Admitted {
    /// Nothing yet.
    #[must_use]
    pub fn new(disks: &Disks) -> Self {
        Self {
            predictor: disks.predictor(),
            on_disk: vec![OnDisk::default(); disks.count],
            streams: Vec::new(),
            next_task: 0,
        }
    }

    /// Nothing yet on disks where all streams will lie within these sectors, and need what they take there
    /// ([`Track::within`](super::Track::within)).
    #[must_use]
    pub fn within(disks: &Disks, regions: &[Option<Range<Sector>>]) -> Self {
        let mut admitted = Self::new(disks);
        for (on_disk, region) in admitted.on_disk.iter_mut().zip(regions) {
            on_disk.way_back = region.as_ref().map_or(Nanos::ZERO, |region| {
                admitted.predictor.way_back(region, None)
            });
            on_disk.within.clone_from(region);
        }
        admitted
    }

    /// Nothing yet on disks where all streams will lie within these sectors, and those of one period are served in
    /// sweeps: their seeks together are what is reserved for them.
    #[must_use]
    pub fn in_sweeps(disks: &Disks, regions: &[Option<Range<Sector>>]) -> Self {
        let mut admitted = Self::within(disks, regions);
        for on_disk in &mut admitted.on_disk {
            if let Some(within) = &on_disk.within {
                on_disk.way_back = admitted.predictor.way_into(within, None);
                on_disk.sweeps = Some(Vec::new());
            }
        }
        admitted
    }

    /// The admitted streams.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Number of tasks on all disks together.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.on_disk.iter().map(|disk| disk.tasks.len()).sum()
    }

    /// The share of its time that is promised on each disk.
    #[must_use]
    pub fn utilizations(&self) -> Vec<f64> {
        let of = |disk: &OnDisk| {
            let tasks = disk.tasks.iter();
            tasks
                .map(|task| task.params.service().get() as f64 / task.params.period().get() as f64)
                .sum()
        };
        self.on_disk.iter().map(of).collect()
    }

    /// Delta-L of each disk, corrected and as published.
    #[must_use]
    pub fn delta_l(&self) -> Vec<(DeltaL, DeltaL)> {
        let of = |disk: &OnDisk| (delta_l(&disk.admission), delta_l_published(&disk.admission));
        self.on_disk.iter().map(of).collect()
    }

    /// Adds streams, all of them or none.
    ///
    /// # Errors
    /// The first disk and stream for which there is no room.
    pub fn add(&mut self, streams: &[Stream]) -> Result<(), NotAdmitted> {
        let mut with = self.clone();
        for stream in streams {
            with.add_one(stream)?;
        }
        *self = with;
        Ok(())
    }

    fn add_one(&mut self, stream: &Stream) -> Result<(), NotAdmitted> {
        for (lane, of) in stream.track.lanes.iter().enumerate() {
            let period = Nanos(stream.period.get().saturating_mul(of.need.gap));
            let disk = of.need.disk;
            let class = if self.on_disk[disk].sweeps.is_some() {
                self.join_sweep(disk, period, &of.swept)?
            } else {
                let params = TaskParams::new(of.need.service, period);
                let params = params.map_err(|error| NotAdmitted::Task { disk, error })?;
                let task = self.next_task();
                self.join(disk, task, params, TaskKind::Stream)?;
                Class::Stream(task)
            };
            let stream = self.streams.len();
            self.on_disk[disk].streams.push(StreamTask {
                class,
                stream,
                lane,
            });
        }
        self.streams.push(stream.clone());
        Ok(())
    }

    /// Adds a reservation of best effort on every disk, or on none.
    ///
    /// # Errors
    /// The first disk that has no room for it.
    pub fn reserve(&mut self, reserved: Reserved) -> Result<(), NotAdmitted> {
        let mut with = self.clone();
        for disk in 0..with.on_disk.len() {
            let Reserved {
                slice,
                period,
                piece_max,
                ..
            } = reserved;
            let params = TaskParams::new(slice, period);
            let params = params.map_err(|error| NotAdmitted::Task { disk, error })?;
            let task = with.next_task();
            with.join(disk, task, params.in_pieces(piece_max), TaskKind::Server)?;
            with.on_disk[disk].servers.push((reserved.source, task));
        }
        *self = with;
        Ok(())
    }

    /// Makes a lane a member of the task of its period.
    fn join_sweep(
        &mut self,
        disk: usize,
        period: Nanos,
        swept: &Swept,
    ) -> Result<Class, NotAdmitted> {
        let mut so_far = self.on_disk[disk].sweeps.iter().flatten();
        let before = so_far.find(|of| of.period == period).cloned();
        let before = before.unwrap_or_else(|| Members {
            task: self.next_task(),
            period,
            count: 0,
            each_sum: Nanos::ZERO,
            most: swept.clone(),
        });
        let (task, member) = (before.task, before.count);
        let with = before.with(swept);
        let on_disk = &mut self.on_disk[disk];
        let groups = on_disk.sweeps.get_or_insert_default();
        groups.retain(|of| of.task != task);
        on_disk.admission.remove(task);
        on_disk.tasks.retain(|of| of.id != task);
        let params = with.params(on_disk.within.as_ref(), &self.predictor);
        let params = params.map_err(|error| NotAdmitted::Task { disk, error })?;
        groups.push(with);
        self.join(disk, task, params, TaskKind::Sweep)?;
        Ok(Class::Swept(task, member))
    }

    fn next_task(&mut self) -> TaskId {
        self.next_task += 1;
        TaskId(self.next_task - 1)
    }

    fn join(
        &mut self,
        disk: usize,
        id: TaskId,
        params: TaskParams,
        kind: TaskKind,
    ) -> Result<(), NotAdmitted> {
        let on_disk = &mut self.on_disk[disk];
        on_disk
            .admission
            .insert(id, params)
            .map_err(|refusal| NotAdmitted::Refused { disk, refusal })?;
        on_disk.tasks.push(DiskTask { id, params, kind });
        let way_back = on_disk.way_back;
        let delta_l = if way_back.is_zero() {
            Nanos::MAX
        } else {
            delta_l(&on_disk.admission).value
        };
        if delta_l < way_back {
            return Err(NotAdmitted::NoWayBack {
                disk,
                delta_l,
                way_back,
            });
        }
        Ok(())
    }
}
