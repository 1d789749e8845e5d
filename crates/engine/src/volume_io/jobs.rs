//! The jobs of the pool's worker.

use crate::state::disk::feeder::SubmitMode;
use crate::state::pool::committer::Committer;
use crate::state::pool::keeper::Keeper;
use crate::state::pool::repair::Repairs;
use crate::state::worker::Job;
use crate::volume_io::{after, issue, rounds};

/// Performs a job. Never sleeps on a disk.
pub(crate) fn perform(job: Job, committer: &Committer, keeper: &Keeper, repairs: &Repairs) {
    match job {
        Job::Answered(op, completion) => op.answered(&mut op.state.lock(), &completion),
        Job::Ready(op) => issue::start(&op, SubmitMode::NonBlocking),
        Job::Followed(op) => after::predecessors_done(&op, SubmitMode::NonBlocking),
        Job::Gate(volume) => {
            while let Some(op) = volume.next_held() {
                if op.wait_ended() {
                    issue::start(&op, SubmitMode::NonBlocking);
                }
            }
        }
        Job::Retry(volume) => issue::retry(&volume),
        Job::Rewrite(write) => {
            if let Err(refused) = repairs.rewrite(write) {
                issue::give_up(refused);
            }
        }
        Job::Trouble(place, grade) => repairs.note(place, grade),
        Job::Join(op) => rounds::join(&op),
        Job::Synced(round) => rounds::synced(round, committer),
        Job::Idle(stream) => keeper.idle(stream),
        // The caller of `fence` waits on the other end.
        Job::Fence(asked) => asked.send(()).unwrap_or_default(),
    }
}
