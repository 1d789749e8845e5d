//! Tests that have two forms: one for every run of the tests, and a full one that takes long.

use std::cell::Cell;

thread_local! {
    static IS_FULL: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread's test runs in its full form.
pub fn is_full() -> bool {
    IS_FULL.get()
}

/// Runs a test in its full form.
pub fn in_full(test: fn()) {
    IS_FULL.set(true);
    test();
}

/// The full forms of tests, which ask [`is_full`](crate::full::is_full): tests of their own, which only
/// `make soak` runs. The first words say `soak: ` and what makes them full.
#[macro_export]
macro_rules! full {
    ($why:literal, $($test:ident => $full:ident),+ $(,)?) => {$(
        #[test]
        #[ignore = $why]
        fn $full() {
            $crate::full::in_full($test);
        }
    )+};
}
