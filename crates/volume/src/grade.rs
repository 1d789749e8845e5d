//! Grades of extents: places that the pool uses for best effort only, or not at all.

/// The defect of an extent. A later variant is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Grade {
    /// Requests to it take longer than the drive's profile says: retries, or replaced sectors elsewhere on the
    /// disk. It is allocated last, and never to a reservation that could have another.
    Slow {
        /// The longest time beyond the prediction that a request was seen to take.
        extra_us: u32,
    },
    /// A transfer failed there. Nothing new is placed on it.
    Bad,
}

/// Extents that an allocation may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quality {
    /// Slow ones where there is no other.
    GoodFirst,
    /// Slow ones never.
    GoodOnly,
}
