//! A scheduler that tries every schedule with a bounded number of preemptions (iterative context
//! bounding, Musuvathi and Qadeer 2007), depth first.
//!
//! A preemption takes the processor from a thread that could go on. Switches when a thread ends or
//! waits are free and all of them are tried, so a bound of zero covers every order of whole threads. The
//! number of schedules grows exponentially with the steps of a thread, but only polynomially for those with
//! `n` preemptions, and most faults need no more than two.
//!
//! Equal choices may lead to different steps in another execution: a compare-and-swap of pointers depends on
//! addresses, and freed memory may or may not come back at the same address. A recorded choice may then be
//! impossible; from that step on the choices are found anew.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

pub(crate) struct Bounded {
    preemptions_max: usize,
    /// The runnable threads at each step of this execution, and the choice.
    levels: Vec<(Vec<TaskId>, usize)>,
    depth: usize,
    preemptions: usize,
    started: bool,
}

impl Bounded {
    pub(crate) fn new(preemptions_max: usize) -> Self {
        Self {
            preemptions_max,
            levels: Vec::new(),
            depth: 0,
            preemptions: 0,
            started: false,
        }
    }
}

impl Scheduler for Bounded {
    fn new_execution(&mut self) -> Option<Schedule> {
        while self
            .levels
            .pop_if(|(choices, chosen)| *chosen + 1 == choices.len())
            .is_some()
        {}
        match self.levels.last_mut() {
            Some((_, chosen)) => *chosen += 1,
            None if self.started => return None,
            None => {}
        }
        self.started = true;
        self.depth = 0;
        self.preemptions = 0;
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        _is_yielding: bool,
    ) -> Option<TaskId> {
        let ids = runnable.iter().map(|task| task.id());
        let chosen_before = self
            .levels
            .get(self.depth)
            .map(|(all, chosen)| all[*chosen]);
        if chosen_before.is_some_and(|before| ids.clone().all(|id| id != before)) {
            self.levels.truncate(self.depth);
        }
        let stays = current.filter(|current| ids.clone().any(|id| id == *current));
        if self.depth == self.levels.len() {
            let choices = match stays {
                Some(current) if self.preemptions == self.preemptions_max => vec![current],
                Some(current) => {
                    let others = ids.filter(|id| *id != current);
                    std::iter::once(current).chain(others).collect()
                }
                None => ids.collect(),
            };
            self.levels.push((choices, 0));
        }
        let (choices, chosen) = &self.levels[self.depth];
        let next = choices[*chosen];
        self.depth += 1;
        self.preemptions += usize::from(stays.is_some_and(|current| current != next));
        Some(next)
    }

    fn next_u64(&mut self) -> u64 {
        unreachable!("the tests draw no random numbers")
    }
}
