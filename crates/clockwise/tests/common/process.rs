//! A program that does not outlive its test.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output};

/// A child that is killed when the test ends before it does, however the test ends.
pub(crate) struct Process(Option<Child>);

impl Process {
    /// Starts it.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.spawn();
        Self(Some(child.unwrap_or_else(|error| {
            panic!("{}: {error}", command.get_program().display())
        })))
    }

    /// All that it says on what is piped, to its end.
    pub(crate) fn output(mut self) -> Output {
        let child = self.0.take().expect("it is taken only here");
        child.wait_with_output().expect("it ends")
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it is taken only with all of it")
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is taken only with all of it")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Gone already is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
