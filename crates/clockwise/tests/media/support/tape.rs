//! Recordings that are made and played by the parts of the server, without its connections.

#![allow(dead_code, reason = "each test uses its part of this")]

use std::sync::Arc;

use engine::stream::{Stream, StreamSpec};
use media::archive::Archive;
use media::archive::archives::Archives;
use media::record::RtpRecorder;
use media::rtp::packet::HEADER_BYTES;
use media::sdp::Description;
use media::session::registry::{Session, SessionSubject, SessionUse};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond};

use crate::served::Rig;
use testkit::until;

/// One track of a kind that nobody knows.
pub(crate) const SDP: &[u8] =
    b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=audio 0 RTP/AVP 96\r\na=rtpmap:96 X-TEST/1000\r\n";

/// Bytes of a packet's body: two of them and more fit into what is too little for a packet of an unknown length.
pub(crate) const BODY: usize = 700;

pub(crate) fn opened(rig: &Rig) -> (Archives, Arc<Archive>) {
    let archives = Archives::new(Arc::clone(&rig.pool), Bytes::from_kib(64), |_| false);
    let archive = archives.open("cam", Some(Bytes::from_kib(64))).unwrap();
    (archives, archive)
}

/// A reservation for so many bytes of an archive, when what has ended has given its share back.
pub(crate) fn reserve(
    archives: &Archives,
    archive: &Archive,
    op: Op,
    range: std::ops::Range<u64>,
    wraps: bool,
) -> Stream {
    let spec = || StreamSpec {
        name: "a test".into(),
        volume: Arc::clone(archive.volume()),
        range: Some(range.clone()),
        rate: BytesPerSecond(500_000),
        block: Bytes::from_kib(64),
        op,
        span: None,
        wraps,
    };
    let mut stream = None;
    until("what has ended has given its share back", || {
        stream = archives.pool().reserve(spec()).ok();
        stream.is_some()
    });
    stream.unwrap()
}

/// Reservation for a recording.
pub(crate) fn reserved(archives: &Archives, archive: &Archive) -> (Stream, Arc<Session>) {
    let stream = reserve(archives, archive, Op::Write, archive.range(), true);
    let about = SessionSubject {
        who: "a test".into(),
        does: SessionUse::Records,
        volume: "cam".into(),
        recording: 1,
    };
    let member = archives.registry().join(about, &stream).unwrap();
    (stream, member)
}

/// A recording of that description, whose live stream nobody else has.
pub(crate) fn begun<'a>(
    stream: &'a Stream,
    archive: &Arc<Archive>,
    sdp: &[u8],
    member: Arc<Session>,
) -> RtpRecorder<'a> {
    let description = Description::parse(sdp).unwrap();
    let writing = archive.record().unwrap();
    RtpRecorder::new(stream, writing, &description, member, &Arc::default()).unwrap()
}

pub(crate) fn header(number: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&[0x80, 96]);
    header[2..4].copy_from_slice(&number.to_be_bytes());
    header[11] = 7;
    header
}
