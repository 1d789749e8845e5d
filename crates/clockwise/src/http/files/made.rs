//! A file that is made while it is sent.

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
use media::files::{Emit, ExportError, Source};
use peers::log_throttle::Sparing;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::running::{Running, Untaken};
use super::{MISSING_BLOCKS_NAME, PIECE_BYTES, PIECES_AHEAD, Shared, TAKEN_WITHIN, plain};
use crate::wire::MISSING_BLOCKS;

/// Exports of damaged recordings, which anybody may ask for as often as they like.
static DAMAGED: Sparing = Sparing::few();

/// Exports that are not taken to their ends.
static CUT: Sparing = Sparing::few();

/// What is made of a file, in order.
pub(super) enum Piece {
    Bytes(Bytes),
    /// All was made, without so many blocks that are missing.
    End(u64),
}

/// A file that is made on a thread of its own, as it is taken.
pub(super) struct Made {
    pieces: mpsc::Receiver<Result<Piece, ExportError>>,
    /// What was looked at already.
    first: Option<Bytes>,
    /// Whether it is said at the end how many blocks are missing.
    says_missing: bool,
    is_over: bool,
}

impl Made {
    /// Has `make` make it.
    pub(super) fn begin(
        app: &Shared,
        permit: OwnedSemaphorePermit,
        mut source: Source,
        make: impl FnOnce(&mut Source, &mut Emit<'_>) -> Result<(), ExportError> + Send + 'static,
    ) -> Self {
        let (send, pieces) = mpsc::channel(PIECES_AHEAD);
        let running = Arc::clone(&app.media.running);
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut outlet = Outlet {
                send,
                handle,
                running: Arc::clone(&running),
                within: TAKEN_WITHIN,
                cut: None,
                is_begun: false,
            };
            let mut emit = |bytes| match running.is_ending() {
                true => outlet.end(ExportError::Unwanted),
                false => outlet.put(bytes),
            };
            // Of a panic all is in the log already.
            let made = panics::survive(|| make(&mut source, &mut emit))
                .unwrap_or(Err(ExportError::Unwanted));
            let made = outlet.cut.take().map_or(made, Err);
            let (of, missing) = (source.recording(), source.missing_blocks());
            let volume = source.volume();
            if missing > 0
                && let Some(untold) = DAMAGED.turn(Instant::now())
            {
                let left_out = source.left_out;
                tracing::warn!(
                    volume,
                    recording = of.number,
                    missing,
                    left_out,
                    untold,
                    "blocks of an export are damaged or gone"
                );
            }
            if let Err(error) = &made
                && outlet.is_begun
                && let Some(untold) = CUT.turn(Instant::now())
            {
                tracing::warn!(volume, recording = of.number, %error, untold, "an export ends before its end");
            }
            if let Err(error) = outlet.finish(made.map(|()| Piece::End(missing)))
                && let Some(untold) = CUT.turn(Instant::now())
            {
                tracing::warn!(volume, recording = of.number, %error, untold, "the end of an export is not taken");
            }
        });
        Self {
            pieces,
            first: None,
            says_missing: false,
            is_over: false,
        }
    }

    /// A file whose length is not known: what is wrong before anything of it is there is an answer of its own.
    pub(super) fn streamed(mut self, kind: &'static str) -> Result<Response, ExportError> {
        match self.pieces.blocking_recv() {
            Some(Ok(Piece::Bytes(bytes))) => self.first = Some(bytes),
            Some(Ok(Piece::End(_))) => return Err(ExportError::Empty),
            Some(Err(error)) => return Err(error),
            None => return Err(ExportError::Unwanted),
        }
        self.says_missing = true;
        let mut response = plain(kind, Body::new(self));
        let trailer = HeaderValue::from_static(MISSING_BLOCKS);
        response.headers_mut().insert(header::TRAILER, trailer);
        Ok(response)
    }
}

impl hyper::body::Body for Made {
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
        let polled = std::task::ready!(self.pieces.poll_recv(context));
        Poll::Ready(match polled {
            Some(Ok(Piece::Bytes(bytes))) => Some(Ok(Frame::data(bytes))),
            Some(Ok(Piece::End(missing))) => {
                self.is_over = true;
                self.says_missing.then(|| {
                    let trailer = (MISSING_BLOCKS_NAME, HeaderValue::from(missing));
                    Ok(Frame::trailers([trailer].into_iter().collect()))
                })
            }
            Some(Err(error)) => Some(Err(error)),
            None => Some(Err(ExportError::Unwanted)),
        })
    }
}

/// Where the pieces of a file go.
struct Outlet {
    send: mpsc::Sender<Result<Piece, ExportError>>,
    handle: Handle,
    running: Arc<Running>,
    within: Duration,
    /// Why no more is made.
    cut: Option<ExportError>,
    is_begun: bool,
}

impl Outlet {
    /// Gives bytes to who takes them, as long as somebody does.
    fn put(&mut self, bytes: Vec<u8>) -> ControlFlow<()> {
        // Copies, so that what somebody does not take keeps no more of them in memory than it is.
        for piece in bytes.chunks(PIECE_BYTES).map(Bytes::copy_from_slice) {
            self.put_piece(Ok(Piece::Bytes(piece)))?;
            self.is_begun = true;
        }
        ControlFlow::Continue(())
    }

    fn put_piece(&mut self, piece: Result<Piece, ExportError>) -> ControlFlow<()> {
        let Self { running, send, .. } = self;
        let handed = running.hand_on(send, piece, 1, self.within);
        match self.handle.block_on(handed) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Untaken::Closed) => ControlFlow::Break(()),
            Err(Untaken::Stalled) => self.end(ExportError::Stalled(self.within)),
            Err(Untaken::Ends) => self.end(ExportError::Unwanted),
        }
    }

    /// Says how it ended, as long as that is waited for; without an end nobody takes it for all.
    fn finish(mut self, end: Result<Piece, ExportError>) -> Result<(), ExportError> {
        if !matches!(end, Err(ExportError::Stalled(_) | ExportError::Unwanted)) {
            let _ = self.put_piece(end);
        }
        self.cut.map_or(Ok(()), Err)
    }

    fn end(&mut self, why: ExportError) -> ControlFlow<()> {
        self.cut = Some(why);
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outlet for so many exports at a time, what comes of it, and what it takes to block on it.
    fn outlet(most: usize, within: Duration) -> (tokio::runtime::Runtime, Outlet, Pieces) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (send, pieces) = mpsc::channel(PIECES_AHEAD);
        let outlet = Outlet {
            send,
            handle: runtime.handle().clone(),
            running: Arc::new(Running::new(most)),
            within,
            cut: None,
            is_begun: false,
        };
        (runtime, outlet, pieces)
    }

    type Pieces = mpsc::Receiver<Result<Piece, ExportError>>;

    #[test]
    fn an_export_that_nobody_takes_ends_when_there_is_no_place_for_another() {
        let (runtime, mut outlet, mut pieces) = outlet(1, Duration::from_millis(20));
        let running = Arc::clone(&outlet.running);
        let _all = running.permit().unwrap();
        let mut put = runtime.spawn_blocking(move || {
            let flow = outlet.put(vec![7; (PIECES_AHEAD + 1) * PIECE_BYTES]);
            (flow, outlet.cut)
        });
        // As long as nobody else wants one it may take the next piece when it likes.
        let waits = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(200), &mut put)
                .await
                .is_err()
        });
        assert!(waits);
        assert!(running.permit().is_none());
        let (flow, cut) = runtime.block_on(put).unwrap();
        assert!(flow.is_break());
        assert!(matches!(cut, Some(ExportError::Stalled(_))), "{cut:?}");
        let mut made = 0;
        while let Some(Ok(Piece::Bytes(piece))) = pieces.blocking_recv() {
            made += piece.len();
        }
        assert_eq!(made, PIECES_AHEAD * PIECE_BYTES);
        // One for one.
        assert!(!running.gives_up(1));
    }

    /// Also one of which only the end is left to take.
    #[test]
    fn the_end_of_an_export_is_waited_with_no_longer_than_anything_of_it() {
        let (runtime, mut outlet, pieces) = outlet(1, Duration::from_millis(20));
        let running = Arc::clone(&outlet.running);
        let all = running.permit().unwrap();
        assert!(running.permit().is_none());
        let finished = runtime.block_on(runtime.spawn_blocking(move || {
            let flow = outlet.put(vec![7; PIECES_AHEAD * PIECE_BYTES]);
            (flow, outlet.finish(Ok(Piece::End(0))))
        }));
        let (flow, finished) = finished.unwrap();
        assert!(flow.is_continue());
        assert!(matches!(finished, Err(ExportError::Stalled(_))));
        drop(pieces);
        // Who was refused has not come back, and there is room.
        assert!(running.permit().is_none());
        drop(all);
        assert!(!running.gives_up(1));
    }

    #[test]
    fn an_export_that_nobody_takes_ends_with_the_server() {
        let (runtime, mut outlet, _pieces) = outlet(1, Duration::from_secs(3_600));
        let running = Arc::clone(&outlet.running);
        let put = runtime.spawn_blocking(move || {
            let flow = outlet.put(vec![7; (PIECES_AHEAD + 1) * PIECE_BYTES]);
            (flow, outlet.cut)
        });
        running.ends.send_replace(true);
        let (flow, cut) = runtime.block_on(put).unwrap();
        assert!(flow.is_break());
        assert!(matches!(cut, Some(ExportError::Unwanted)), "{cut:?}");
        assert!(running.permit().is_none());
    }
}
