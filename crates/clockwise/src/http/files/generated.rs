//! The body of a response that is generated while it is sent.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use engine::panics;
use hyper::body::{Bytes, Frame};
use media::files::{Emit, Export, ExportError};
use peers::log_throttle::SharedLogThrottle;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::slots::{SendError, Slots};
use super::{MISSING_BLOCKS_NAME, PIECES_AHEAD, STALL_TIMEOUT, SharedApp, pieces, plain};
use crate::wire::MISSING_BLOCKS;

/// Throttles lines about exports of damaged recordings, which clients may request as often as they like.
static DAMAGED: SharedLogThrottle = SharedLogThrottle::few();

/// Throttles lines about exports that end early.
static ENDED_EARLY: SharedLogThrottle = SharedLogThrottle::few();

/// A part of a file, in order.
pub(super) enum Piece {
    Bytes(Bytes),
    /// The end of the file, with the number of blocks that are missing in it.
    End(u64),
}

/// A body that a thread of its own generates at the pace of the client.
pub(super) struct GeneratedBody {
    pieces: mpsc::Receiver<Result<Piece, ExportError>>,
    /// The first piece, if it was taken from the queue already.
    first: Option<Bytes>,
    /// True if a trailer reports the number of missing blocks.
    has_trailer: bool,
    is_over: bool,
    /// The error that ends it, when what is before it has been sent.
    error: Option<ExportError>,
}

impl GeneratedBody {
    /// Starts a thread that runs `make`.
    pub(super) fn start<E: Export + Send + 'static>(
        app: &SharedApp,
        permit: OwnedSemaphorePermit,
        mut source: E,
        make: impl FnOnce(&mut E, &mut Emit<'_>) -> Result<(), ExportError> + Send + 'static,
    ) -> Self {
        let (queue, pieces) = mpsc::channel(PIECES_AHEAD);
        let slots = Arc::clone(&app.media.exports);
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut sender = PieceSender {
                queue,
                handle,
                slots: Arc::clone(&slots),
                within: STALL_TIMEOUT,
                failure: None,
                is_begun: false,
            };
            let mut emit = |bytes| match slots.is_closed() {
                true => sender.fail(ExportError::Disconnected),
                false => sender.send(bytes),
            };
            // The panic hook has written a panic to the log.
            let result = panics::survive(|| make(&mut source, &mut emit))
                .unwrap_or(Err(ExportError::Disconnected));
            let result = sender.failure.take().map_or(result, Err);
            let (recording, missing) = (source.recording(), source.missing_blocks());
            let volume = source.volume();
            if missing > 0
                && let Some(untold) = DAMAGED.turn(Instant::now())
            {
                let left_out = source.left_out();
                tracing::warn!(
                    volume,
                    recording,
                    missing,
                    left_out,
                    untold,
                    "an export lacks blocks of its recording that are damaged or overwritten"
                );
            }
            if let Err(error) = &result
                && sender.is_begun
                && let Some(untold) = ENDED_EARLY.turn(Instant::now())
            {
                tracing::warn!(volume, recording, %error, untold, "an export ended early");
            }
            if let Err(error) = sender.finish(result.map(|()| Piece::End(missing)))
                && let Some(untold) = ENDED_EARLY.turn(Instant::now())
            {
                tracing::warn!(volume, recording, %error, untold, "the client of an export did not take its end");
            }
        });
        Self {
            pieces,
            first: None,
            has_trailer: false,
            is_over: false,
            error: None,
        }
    }

    /// A response of unknown length. An error before the first piece is returned instead.
    pub(super) fn stream(mut self, kind: &'static str) -> Result<Response, ExportError> {
        match self.pieces.blocking_recv() {
            Some(Ok(Piece::Bytes(bytes))) => self.first = Some(bytes),
            Some(Ok(Piece::End(_))) => return Err(ExportError::Empty),
            Some(Err(error)) => return Err(error),
            None => return Err(ExportError::Disconnected),
        }
        self.has_trailer = true;
        let mut response = plain(kind, Body::new(self));
        let trailer = HeaderValue::from_static(MISSING_BLOCKS);
        response.headers_mut().insert(header::TRAILER, trailer);
        Ok(response)
    }
}

impl hyper::body::Body for GeneratedBody {
    type Data = Bytes;
    type Error = ExportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExportError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = std::task::ready!(self.pieces.poll_recv(context));
        let error = match polled {
            Some(Ok(Piece::Bytes(bytes))) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Ok(Piece::End(missing))) => {
                self.is_over = true;
                return Poll::Ready(self.has_trailer.then(|| {
                    let trailer = (MISSING_BLOCKS_NAME, HeaderValue::from(missing));
                    Ok(Frame::trailers([trailer].into_iter().collect()))
                }));
            }
            Some(Err(error)) => error,
            None => ExportError::Disconnected,
        };
        // An error closes the connection at once. While nothing is ready, what is before it is sent, at least the head.
        self.error = Some(error);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Sends the pieces of a file to the client.
struct PieceSender {
    queue: mpsc::Sender<Result<Piece, ExportError>>,
    handle: Handle,
    slots: Arc<Slots>,
    within: Duration,
    /// Why no more can be sent.
    failure: Option<ExportError>,
    is_begun: bool,
}

impl PieceSender {
    /// Sends bytes to the client, as long as it is connected.
    fn send(&mut self, bytes: Vec<u8>) -> ControlFlow<()> {
        for piece in pieces(&bytes) {
            self.send_piece(Ok(Piece::Bytes(piece)))?;
            self.is_begun = true;
        }
        ControlFlow::Continue(())
    }

    fn send_piece(&mut self, piece: Result<Piece, ExportError>) -> ControlFlow<()> {
        let sending = self.slots.send(&self.queue, piece, 1, self.within);
        match self.handle.block_on(sending) {
            Ok(()) => ControlFlow::Continue(()),
            Err(SendError::Closed) => ControlFlow::Break(()),
            Err(SendError::Stalled) => self.fail(ExportError::Stalled(self.within)),
            Err(SendError::ServerEnds) => self.fail(ExportError::Disconnected),
        }
    }

    /// Sends the end, unless the client stalls or the server ends. Without an end the client knows that the
    /// file is incomplete.
    fn finish(mut self, end: Result<Piece, ExportError>) -> Result<(), ExportError> {
        if !matches!(
            end,
            Err(ExportError::Stalled(_) | ExportError::Disconnected)
        ) {
            let _ = self.send_piece(end);
        }
        self.failure.map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: ExportError) -> ControlFlow<()> {
        self.failure = Some(error);
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::PIECE_BYTES;
    use super::*;

    /// A sender with a number of slots, the receiving end, and a runtime to block on.
    fn sender(slots: usize, within: Duration) -> (tokio::runtime::Runtime, PieceSender, Pieces) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (queue, pieces) = mpsc::channel(PIECES_AHEAD);
        let sender = PieceSender {
            queue,
            handle: runtime.handle().clone(),
            slots: Arc::new(Slots::new(slots)),
            within,
            failure: None,
            is_begun: false,
        };
        (runtime, sender, pieces)
    }

    type Pieces = mpsc::Receiver<Result<Piece, ExportError>>;

    #[test]
    fn stalled_export_ends_when_another_needs_its_slot() {
        let (runtime, mut sender, mut pieces) = sender(1, Duration::from_millis(20));
        let slots = Arc::clone(&sender.slots);
        let _all = slots.permit().unwrap();
        let mut sent = runtime.spawn_blocking(move || {
            let flow = sender.send(vec![7; (PIECES_AHEAD + 1) * PIECE_BYTES]);
            (flow, sender.failure)
        });
        // As long as no other export needs the slot, the client may pause.
        let waits = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(200), &mut sent)
                .await
                .is_err()
        });
        assert!(waits);
        assert!(slots.permit().is_none());
        let (flow, failure) = runtime.block_on(sent).unwrap();
        assert!(flow.is_break());
        assert!(
            matches!(failure, Some(ExportError::Stalled(_))),
            "{failure:?}"
        );
        let mut received = 0;
        while let Some(Ok(Piece::Bytes(piece))) = pieces.blocking_recv() {
            received += piece.len();
        }
        assert_eq!(received, PIECES_AHEAD * PIECE_BYTES);
        // Only one export gives up its slot for one request.
        assert!(!slots.must_yield(1));
    }

    #[test]
    fn stalled_export_of_which_only_the_end_is_left_ends_as_well() {
        let (runtime, mut sender, pieces) = sender(1, Duration::from_millis(20));
        let slots = Arc::clone(&sender.slots);
        let all = slots.permit().unwrap();
        assert!(slots.permit().is_none());
        let finished = runtime.block_on(runtime.spawn_blocking(move || {
            let flow = sender.send(vec![7; PIECES_AHEAD * PIECE_BYTES]);
            (flow, sender.finish(Ok(Piece::End(0))))
        }));
        let (flow, finished) = finished.unwrap();
        assert!(flow.is_continue());
        assert!(matches!(finished, Err(ExportError::Stalled(_))));
        drop(pieces);
        // The refused request was not repeated, and the slot is free.
        assert!(slots.permit().is_none());
        drop(all);
        assert!(!slots.must_yield(1));
    }

    #[test]
    fn stalled_export_ends_with_the_server() {
        let (runtime, mut sender, _pieces) = sender(1, Duration::from_secs(3_600));
        let slots = Arc::clone(&sender.slots);
        let sent = runtime.spawn_blocking(move || {
            let flow = sender.send(vec![7; (PIECES_AHEAD + 1) * PIECE_BYTES]);
            (flow, sender.failure)
        });
        slots.close();
        let (flow, failure) = runtime.block_on(sent).unwrap();
        assert!(flow.is_break());
        assert!(
            matches!(failure, Some(ExportError::Disconnected)),
            "{failure:?}"
        );
        assert!(slots.permit().is_none());
    }
}
