//! The description that each block ends with.

use std::sync::Arc;

use sched::units::BytesPerSecond;

use crate::sdp::Description;

/// The text of the description for new blocks. It names the highest rate that has been reserved: players reserve by it.
pub(super) struct BlockText {
    text: Arc<[u8]>,
    /// The length that blocks keep free for it, in bytes.
    bytes_max: usize,
    description: Description,
    /// The description that the text is of.
    described: Arc<Description>,
    /// The rate that the text names.
    rate: BytesPerSecond,
}

impl BlockText {
    pub(super) fn new(description: &Description, rate: BytesPerSecond) -> Self {
        let text = description.text();
        let longest = description.clone().needing_just(BytesPerSecond(u64::MAX));
        let longest = longest.map_or(0, |of| of.text().len());
        Self {
            bytes_max: text.len().max(longest),
            text: text.into(),
            description: description.clone(),
            described: Arc::new(description.clone()),
            rate,
        }
    }

    pub(super) fn current(&self) -> Arc<[u8]> {
        Arc::clone(&self.text)
    }

    pub(super) fn described(&self) -> &Arc<Description> {
        &self.described
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Names `rate` if it is higher than the rate that the text names. A text that would become too long stays as
    /// it is.
    pub(super) fn raise_rate(&mut self, rate: BytesPerSecond) {
        if rate <= self.rate {
            return;
        }
        self.rate = rate;
        let described = self.description.clone().needing_just(rate).ok();
        let described = described.filter(|of| of.text().len() <= self.bytes_max);
        if let Some(described) = described {
            self.text = described.text().into();
            self.described = Arc::new(described);
        }
    }
}
