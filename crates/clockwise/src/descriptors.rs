//! How many files this process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files as far as it may be, and returns what it is then; `usize::MAX` if
/// there is none.
pub(crate) fn raise() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| current as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_it_may_be() {
        let mut limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.map_or(usize::MAX, |most| most as usize);
        // Enough for whatever is tested beside this.
        limit.current = Some(most.div_ceil(2) as u64);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!([raise(), raise()], [most; 2]);
    }
}
