//! What is made in memory, and sent as it is taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::running::Running;
use super::{PIECE_BYTES, PIECES_AHEAD};
use media::files::ExportError;

/// Bytes that are taken piece by piece.
pub(super) struct Whole {
    pieces: mpsc::Receiver<Bytes>,
    /// How many are to come.
    left: u64,
}

impl Whole {
    /// Has them sent, and gives up their place when they have gone; or when nothing of them is taken for that long and
    /// somebody else wants one, or the server ends.
    pub(super) fn new(
        handle: &Handle,
        running: &Arc<Running>,
        place: OwnedSemaphorePermit,
        bytes: Vec<u8>,
        within: Duration,
    ) -> Self {
        let (send, pieces) = mpsc::channel(PIECES_AHEAD);
        let left = bytes.len() as u64;
        let running = Arc::clone(running);
        handle.spawn(async move {
            let own = place.num_permits();
            // Copies, so that what somebody does not take keeps no more of them in memory than it is.
            for piece in bytes.chunks(PIECE_BYTES).map(Bytes::copy_from_slice) {
                if running.hand_on(&send, piece, own, within).await.is_err() {
                    break;
                }
            }
        });
        Self { pieces, left }
    }
}

impl Body for Whole {
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
            None if self.left > 0 => Some(Err(ExportError::Unwanted)),
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
    use super::*;

    const WITHIN: Duration = Duration::from_millis(20);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    async fn taken(whole: &mut Whole) -> Option<Result<usize, ExportError>> {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *whole).poll_frame(context)).await;
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap().len()))
    }

    #[test]
    fn all_of_it_goes_and_then_its_place_is_free() {
        runtime().block_on(async {
            let running = Arc::new(Running::new(3));
            let place = running.permits(2).unwrap();
            let bytes = vec![7; 5 * PIECE_BYTES / 2];
            let mut whole = Whole::new(&Handle::current(), &running, place, bytes, WITHIN);
            assert_eq!(whole.size_hint().exact(), Some(5 * PIECE_BYTES as u64 / 2));
            // Longer than that, as long as nobody else needs the place.
            tokio::time::sleep(3 * WITHIN).await;
            let mut all = 0;
            while let Some(piece) = taken(&mut whole).await {
                all += piece.unwrap();
            }
            assert_eq!(all, 5 * PIECE_BYTES / 2);
            assert!(whole.is_end_stream());
            assert!(running.permits(3).is_some());
        });
    }

    #[test]
    fn who_takes_nothing_gives_up_its_place_for_somebody_else() {
        runtime().block_on(async {
            let running = Arc::new(Running::new(3));
            let place = running.permits(2).unwrap();
            let bytes = vec![7; 9 * PIECE_BYTES];
            let mut whole = Whole::new(&Handle::current(), &running, place, bytes, WITHIN);
            assert!(running.permits(2).is_none());
            tokio::time::sleep(5 * WITHIN).await;
            assert!(running.permits(2).is_some());
            let mut all = 0;
            let end = loop {
                match taken(&mut whole).await {
                    Some(Ok(piece)) => all += piece,
                    end => break end,
                }
            };
            assert!(all < 9 * PIECE_BYTES);
            assert!(matches!(end, Some(Err(ExportError::Unwanted))), "{end:?}");
        });
    }

    /// Somebody who wants more than one of them has is not forgotten with that one, nor with who wants less.
    #[test]
    fn as_many_give_up_as_are_needed() {
        runtime().block_on(async {
            let running = Arc::new(Running::new(4));
            let make = |places| {
                let place = running.permits(places).unwrap();
                let bytes = vec![7; 9 * PIECE_BYTES];
                Whole::new(&Handle::current(), &running, place, bytes, WITHIN)
            };
            let all = [make(1), make(1), make(1)];
            assert!(running.permits(3).is_none());
            drop(running.permits(1).unwrap());
            assert!(running.permits(2).is_none());
            tokio::time::sleep(5 * WITHIN).await;
            assert!(running.permits(3).is_some());
            drop(all);
        });
    }

    #[test]
    fn it_ends_with_the_server_or_with_who_asked() {
        runtime().block_on(async {
            let running = Arc::new(Running::new(2));
            let hour = Duration::from_secs(3_600);
            let make = || {
                let place = running.permits(1).unwrap();
                let bytes = vec![7; 9 * PIECE_BYTES];
                Whole::new(&Handle::current(), &running, place, bytes, hour)
            };
            let (gone, mut kept) = (make(), make());
            drop(gone);
            let mut all = taken(&mut kept).await.unwrap().unwrap();
            tokio::time::timeout(hour, async {
                while running.places.available_permits() < 1 {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .unwrap();
            running.ends.send_replace(true);
            while let Some(Ok(piece)) = taken(&mut kept).await {
                all += piece;
            }
            assert!(all < 9 * PIECE_BYTES);
            assert_eq!(running.places.available_permits(), 2);
        });
    }
}
