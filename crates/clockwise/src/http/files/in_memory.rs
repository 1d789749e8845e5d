//! The body of a response that is in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::slots::Slots;
use super::{PIECES_AHEAD, pieces};
use media::files::ExportError;

/// A body in memory, sent at the pace of the client.
pub(super) struct MemoryBody {
    pieces: mpsc::Receiver<Bytes>,
    /// Number of bytes that are not sent yet.
    left: u64,
}

impl MemoryBody {
    /// Starts to send `bytes`, and releases `permits` when all are sent, when the server ends, or when the
    /// client takes nothing for `within` and another transfer needs the slots.
    pub(super) fn new(
        handle: &Handle,
        slots: &Arc<Slots>,
        permits: OwnedSemaphorePermit,
        bytes: Vec<u8>,
        within: Duration,
    ) -> Self {
        let (queue, received) = mpsc::channel(PIECES_AHEAD);
        let left = bytes.len() as u64;
        let slots = Arc::clone(slots);
        handle.spawn(async move {
            let own = permits.num_permits();
            for piece in pieces(&bytes) {
                if slots.send(&queue, piece, own, within).await.is_err() {
                    break;
                }
            }
        });
        Self {
            pieces: received,
            left,
        }
    }
}

impl Body for MemoryBody {
    type Data = Bytes;
    type Error = ExportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExportError>>> {
        let piece = std::task::ready!(self.pieces.poll_recv(context));
        Poll::Ready(match piece {
            Some(piece) => {
                self.left -= piece.len() as u64;
                Some(Ok(Frame::data(piece)))
            }
            None if self.left > 0 => Some(Err(ExportError::Disconnected)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PIECE_BYTES;
    use super::*;

    const WITHIN: Duration = Duration::from_millis(20);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    async fn taken(body: &mut MemoryBody) -> Option<Result<usize, ExportError>> {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap().len()))
    }

    #[test]
    fn slots_are_free_when_all_bytes_are_sent() {
        runtime().block_on(async {
            let slots = Arc::new(Slots::new(3));
            let permits = slots.permits(2).unwrap();
            let bytes = vec![7; 5 * PIECE_BYTES / 2];
            let mut body = MemoryBody::new(&Handle::current(), &slots, permits, bytes, WITHIN);
            assert_eq!(body.size_hint().exact(), Some(5 * PIECE_BYTES as u64 / 2));
            // The client may pause for longer than that, as long as no other transfer needs the slots.
            tokio::time::sleep(3 * WITHIN).await;
            let mut all = 0;
            while let Some(piece) = taken(&mut body).await {
                all += piece.unwrap();
            }
            assert_eq!(all, 5 * PIECE_BYTES / 2);
            assert!(body.is_end_stream());
            assert!(slots.permits(3).is_some());
        });
    }

    #[test]
    fn stalled_body_gives_up_its_slots_for_another() {
        runtime().block_on(async {
            let slots = Arc::new(Slots::new(3));
            let permits = slots.permits(2).unwrap();
            let bytes = vec![7; 9 * PIECE_BYTES];
            let mut body = MemoryBody::new(&Handle::current(), &slots, permits, bytes, WITHIN);
            assert!(slots.permits(2).is_none());
            tokio::time::sleep(5 * WITHIN).await;
            assert!(slots.permits(2).is_some());
            let mut all = 0;
            let end = loop {
                match taken(&mut body).await {
                    Some(Ok(piece)) => all += piece,
                    end => break end,
                }
            };
            assert!(all < 9 * PIECE_BYTES);
            assert!(
                matches!(end, Some(Err(ExportError::Disconnected))),
                "{end:?}"
            );
        });
    }

    /// A request for more slots than one body has stays pending after that body has ended, and after a
    /// smaller request.
    #[test]
    fn only_needed_stalled_bodies_end() {
        runtime().block_on(async {
            let slots = Arc::new(Slots::new(4));
            let make = |count| {
                let permits = slots.permits(count).unwrap();
                let bytes = vec![7; 9 * PIECE_BYTES];
                MemoryBody::new(&Handle::current(), &slots, permits, bytes, WITHIN)
            };
            let all = [make(1), make(1), make(1)];
            assert!(slots.permits(3).is_none());
            drop(slots.permits(1).unwrap());
            assert!(slots.permits(2).is_none());
            tokio::time::sleep(5 * WITHIN).await;
            assert!(slots.permits(3).is_some());
            drop(all);
        });
    }

    #[test]
    fn body_ends_with_the_server_or_with_its_client() {
        runtime().block_on(async {
            let slots = Arc::new(Slots::new(2));
            let hour = Duration::from_secs(3_600);
            let make = || {
                let permits = slots.permits(1).unwrap();
                let bytes = vec![7; 9 * PIECE_BYTES];
                MemoryBody::new(&Handle::current(), &slots, permits, bytes, hour)
            };
            let (gone, mut kept) = (make(), make());
            drop(gone);
            let mut all = taken(&mut kept).await.unwrap().unwrap();
            tokio::time::timeout(hour, async {
                while slots.free.available_permits() < 1 {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .unwrap();
            slots.close();
            while let Some(Ok(piece)) = taken(&mut kept).await {
                all += piece;
            }
            assert!(all < 9 * PIECE_BYTES);
            assert_eq!(slots.free.available_permits(), 2);
        });
    }
}
