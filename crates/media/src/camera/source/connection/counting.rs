//! Packets that are counted and dropped, to measure the rate of a camera.

use std::os::fd::AsFd;

use engine::clock;
use sched::units::Time;

use super::CameraConnection;
use crate::camera::inspection::{MEASURED_FOR, Received};
use crate::camera::source::connect::{ANSWER_WITHIN, Waiter};
use crate::camera::source::{LowerTransport, SourceError};
use crate::rtsp::input::{InputError, Next};
use crate::rtsp::poll::Wait;
use crate::rtsp::transport::Transport;

/// The longest datagram.
const DATAGRAM_BYTES_MAX: usize = 65_536;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    Stop,
    Connection,
    Datagrams,
}

impl CameraConnection {
    /// Counts packets of each track from the first one on, for [`MEASURED_FOR`].
    ///
    /// # Errors
    /// No packet arrives, or the session ends.
    pub(in super::super) fn count_packets(
        &mut self,
        transports: &[Option<Transport>],
        lower: LowerTransport,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<Vec<Received>, SourceError> {
        let mut counts = vec![Received::default(); transports.len()];
        let mut until = clock::now().saturating_add(ANSWER_WITHIN);
        let (mut has_any, mut left) = (false, 0);
        loop {
            self.count_interleaved(transports, &mut counts, &mut left, waiter)?;
            count_datagrams(transports, &mut counts);
            if !has_any && counts.iter().any(|of| of.packets > 0) {
                has_any = true;
                until = clock::now().saturating_add(MEASURED_FOR);
            }
            if clock::now() >= until {
                break;
            }
            self.wait(transports, until, waiter)?;
        }
        match (has_any, lower) {
            (true, _) => Ok(counts),
            (false, LowerTransport::Tcp) => Err(SourceError::Silent(ANSWER_WITHIN)),
            (false, by) => Err(SourceError::TransportSilent {
                by,
                wait: ANSWER_WITHIN,
            }),
        }
    }

    /// Sleeps until something arrives, and reads from the connection.
    fn wait(
        &mut self,
        transports: &[Option<Transport>],
        until: Time,
        waiter: &Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let mut wait = Wait::new();
        wait.readable(waiter.stop.as_fd(), Wake::Stop);
        self.link.hear(&mut wait, Wake::Connection);
        for transport in transports.iter().flatten() {
            if let Transport::Udp { rtp, .. } = transport {
                wait.readable(rtp.as_fd(), Wake::Datagrams);
            }
        }
        let ready = wait.sleep(true, Some(until))?;
        if ready.contains(&Wake::Stop) {
            return Err(SourceError::Stopped);
        }
        if ready.contains(&Wake::Connection) && self.receiver().receive(4_096)? == Some(0) {
            return Err(SourceError::Closed);
        }
        Ok(())
    }

    /// Takes what has arrived in the connection. `left` bytes of the last packet have not arrived.
    fn count_interleaved(
        &mut self,
        transports: &[Option<Transport>],
        counts: &mut [Received],
        left: &mut usize,
        waiter: &mut Waiter<'_, '_>,
    ) -> Result<(), SourceError> {
        let mut scratch = [0; 4_096];
        loop {
            while *left > 0 {
                let most = scratch.len().min(*left);
                match self.input.take(&mut scratch[..most]) {
                    0 => return Ok(()),
                    taken => *left -= taken,
                }
            }
            match self.input.next_item() {
                Ok(Next::Response(answer)) => drop(self.take_answer(*answer, waiter)?),
                Ok(Next::Request(request)) => self.answer_request(&request, waiter)?,
                Ok(Next::Packet { channel, len }) => {
                    *left = len;
                    if let Some(track) = track_of(transports, channel) {
                        counts[track].packets += 1;
                        counts[track].bytes += len as u64;
                    }
                }
                Ok(Next::More) => return Ok(()),
                // Some cameras send bytes between packets that belong to none.
                Err(InputError::Syntax) => {
                    self.input.take(&mut [0]);
                    self.input
                        .pass_stray(|channel, _| track_of(transports, channel).is_some());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The track whose RTP packets arrive on a channel.
fn track_of(transports: &[Option<Transport>], channel: u8) -> Option<usize> {
    transports
        .iter()
        .position(|of| matches!(of, Some(Transport::Interleaved { rtp, .. }) if *rtp == channel))
}

/// Takes the datagrams that have arrived.
fn count_datagrams(transports: &[Option<Transport>], counts: &mut [Received]) {
    let mut scratch = [0; DATAGRAM_BYTES_MAX];
    for (transport, count) in transports.iter().zip(counts) {
        if let Some(Transport::Udp { rtp, .. }) = transport {
            while let Ok(len) = rtp.recv(&mut scratch) {
                count.packets += 1;
                count.bytes += len as u64;
            }
        }
    }
}
