//! The limit of open files of this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, and returns the resulting soft limit; `usize::MAX`
/// if there is none.
pub(crate) fn raise() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files to the hard limit; the present limit stays");
        }
    }
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| current as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit() {
        let mut limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.map_or(usize::MAX, |most| most as usize);
        // Half of the hard limit is enough for the tests that run in this process at the same time.
        limit.current = Some(most.div_ceil(2) as u64);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!([raise(), raise()], [most; 2]);
    }
}
