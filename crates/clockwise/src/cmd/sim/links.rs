//! `clockwise sim adversary --link`.

use std::process::ExitCode;

use lab::adversary::link::{LinkFindings, LinkMiss, LinkOptions, search};
use serde::Serialize;

use super::{AdversaryArgs, LinkArg, threads};
use crate::failure::Failure;
use crate::print::Output;

#[derive(Serialize, Debug)]
struct LinkView {
    scheduler: &'static str,
    seed: u64,
    link: LinkArg,
    disks: u64,
    sets: u64,
    sets_with_misses: u64,
    sets_beyond_bounds: u64,
    first_miss: Option<LinkMiss>,
}

pub(super) fn run(
    args: &AdversaryArgs,
    link: LinkArg,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let bar = output.progress(args.sets, "sets");
    let options = LinkOptions {
        scheduler: args.scheduler,
        sharing: link.into(),
        disks: args.disks as usize,
        sets: args.sets,
        seed: args.seed,
        threads: threads(args.threads),
        breaks_rule: false,
    };
    let LinkFindings {
        sets,
        sets_with_misses,
        sets_beyond_bounds,
        first_miss,
    } = search(&options, &|tried| bar.set_position(tried));
    bar.finish_and_clear();
    let view = LinkView {
        scheduler: args.scheduler.name(),
        seed: args.seed,
        link,
        disks: args.disks,
        sets,
        sets_with_misses,
        sets_beyond_bounds,
        first_miss,
    };
    output.result(&view, || text(&view))?;
    Ok(ExitCode::SUCCESS)
}

fn text(view: &LinkView) -> String {
    let LinkView {
        scheduler,
        seed,
        link,
        disks,
        sets,
        sets_with_misses,
        sets_beyond_bounds,
        first_miss,
    } = view;
    let (shared, beyond) = match link {
        LinkArg::Inflate => ("inflated times", "a service took longer than inflated"),
        LinkArg::Lend => (
            "lent places",
            "more disks transferred than there are places",
        ),
    };
    let mut text = format!(
        "{scheduler} on {disks} disks with {shared}: missed deadlines in {sets_with_misses} of {sets} sets \
         (seed {seed})\n{beyond} in {sets_beyond_bounds} of them\n"
    );
    if let Some(miss) = first_miss {
        text += &format!("the first set with a miss was set {}:\n", miss.set);
        for (disk, tasks) in miss.tasks.iter().enumerate() {
            let tasks = tasks.iter();
            let tasks = tasks.map(|task| format!(" ({}, {})", task.service, task.period));
            text += &format!("  disk {disk}:{}\n", tasks.collect::<String>());
        }
        text += &format!(
            "task {} of disk {} was late by {} at its deadline {}\n",
            miss.task, miss.disk, miss.late_by, miss.deadline
        );
    }
    text
}
