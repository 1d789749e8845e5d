//! What the tests of other crates have that these use as well.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    reason = "the other crates' tests use more of it"
)]

#[path = "../../../../engine/tests/engine/common/host.rs"]
pub mod host;
#[path = "../../../../sched/tests/sched/common/random.rs"]
pub mod random;
#[path = "../../../../sched/tests/sched/common/seed.rs"]
pub mod seed;
#[path = "../../../../engine/tests/engine/common/skip.rs"]
pub mod skip;
#[path = "../../../../engine/tests/engine/common/threads.rs"]
pub mod threads;
