//! Requests with data: the memory of each part, its payload, and the pool.

use std::os::fd::BorrowedFd;

use engine::volume_io::VolumeOp;

use super::{Broken, Next, Session};
use crate::exports::nbd::proto::Errno;
use crate::exports::requests::parts::Parts;

impl Session {
    /// Gets a request on its way as far as possible. False if it has to wait.
    pub(super) fn advance(
        &mut self,
        socket: BorrowedFd<'_>,
        mut parts: Parts,
    ) -> Result<bool, Broken> {
        while parts.left > 0 {
            if parts.filling.is_none() {
                let will_come_back = self.is_anything_under_way();
                match self.requests.memory_for(&parts, will_come_back) {
                    Ok(Some(buffer)) => parts.filling = Some((buffer, 0)),
                    Ok(None) => {
                        self.awaits_own = self.is_anything_under_way();
                        self.next = Next::Parts(parts);
                        return Ok(false);
                    }
                    Err(text) => {
                        self.abandon(&parts, text);
                        return Ok(true);
                    }
                }
            }
            if parts.op != VolumeOp::Read && !self.fill(socket, &mut parts)? {
                let again = self.readable;
                self.next = Next::Parts(parts);
                return Ok(again);
            }
            self.payloads += u64::from(parts.op != VolumeOp::Read);
            if self.requests.submit_part(&mut parts) {
                self.take_completions();
            }
        }
        let id = parts.id;
        self.requests.get(id).complete = true;
        self.next = Next::Header;
        self.finish_if_done(id);
        Ok(true)
    }

    /// Gives up a request for which there will never be memory.
    pub(super) fn abandon(&mut self, parts: &Parts, text: String) {
        let pending = self.requests.get(parts.id);
        pending.fail(Errno::NoMemory, text);
        if parts.op != VolumeOp::Read {
            self.next = Next::Skip(parts.id, parts.left as u32);
            return;
        }
        pending.complete = true;
        self.next = Next::Header;
        self.finish_if_done(parts.id);
    }
}
