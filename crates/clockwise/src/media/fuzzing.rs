//! What the fuzz targets call: bytes of a peer, or of a disk.

use super::block::{Block, Header, Trailer, mend};
use super::description::Description;
use super::index::Index;
use super::input::{Input, Next};
use super::packet;
use super::source::{Credentials, Login};

/// What comes on an RTSP connection, in pieces; a request is understood or refused.
pub fn input(data: &[u8]) {
    let mut input = Input::default();
    let piece = usize::from(data.first().copied().unwrap_or(0)) + 1;
    for bytes in data.chunks(piece) {
        input.add(bytes);
        loop {
            match input.next_item() {
                Err(_) => return,
                Ok(Next::More) => break,
                Ok(Next::Packet { len, .. }) => {
                    let mut out = vec![0; len];
                    input.take(&mut out);
                }
                Ok(Next::Request(request)) => {
                    use rtsp_types::headers::{Range, Transports};
                    let _ = request.typed_header::<Transports>();
                    let _ = request.typed_header::<Range>();
                }
                Ok(Next::Response(_)) => {}
            }
        }
    }
}

/// What a camera asks for, the first line, and asks for again, the second; whoever answers neither shows the password nor
/// sends more than one line.
pub fn login(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut login = Login::new(Some(Credentials {
        user: "us\"er".to_owned(),
        password: "never shown".to_owned(),
    }));
    for (number, challenge) in text.lines().take(2).enumerate() {
        let asked = login.ask(challenge, number > 0);
        let said = asked.and_then(|()| login.header("PLAY", "rtsp://h/"));
        let said = said.map_or_else(|error| error.to_string(), Option::unwrap_or_default);
        assert!(!said.contains("never shown"), "{said:?}");
    }
}

/// A description is one or an error; what players are given is one again.
pub fn description(data: &[u8]) {
    if let Ok(description) = Description::parse(data) {
        let given = description.for_players(Some(1));
        if given.len() <= super::description::TEXT_BYTES_MAX {
            let again = Description::parse(&given).expect("what is given is a description");
            assert_eq!(again.tracks().len(), description.tracks().len());
        }
        let tracks = description.tracks().len();
        if let Ok(needed) = description.needing(sched::units::BytesPerSecond(1_000)) {
            assert_eq!(needed.tracks().len(), tracks);
        }
    }
}

/// A packet in its two parts.
pub fn packet(data: &[u8]) {
    let Some((first, body)) = data.split_first_chunk() else {
        return;
    };
    if let Some(header) = packet::Header::parse(first)
        && let Some(payload) = header.payload(body)
    {
        for encoding in ["H264", "H265", "MP4V-ES", ""] {
            let _ = packet::is_key(encoding, payload);
        }
    }
}

/// A section of an index; what is understood is written as it was.
pub fn index(data: &[u8]) {
    if let Ok(index) = Index::parse(data) {
        let written = index.encode(usize::MAX).expect("there is room");
        assert_eq!(Index::parse(&written).expect("it is an index"), index);
        for key in &index.keys {
            assert!((index.first..index.end()).contains(&key.serial));
        }
        for time_ns in [0, index.begins_ns(), u64::MAX] {
            assert!((index.first..index.end()).contains(&index.block_at(time_ns)));
            assert!(
                index
                    .key_at(time_ns)
                    .is_none_or(|key| key.media_ns <= time_ns)
            );
        }
    }
}

/// A block of a disk, a trailer alone, and an archive's header.
pub fn block(data: &[u8]) {
    understood(data);
    // Past the checksums, which no change of a bit gets past.
    let mut mended = data.to_vec();
    mend(&mut mended);
    understood(&mended);
}

fn understood(data: &[u8]) {
    let _ = Header::parse(data);
    let _ = Trailer::parse(data, 65_536);
    if let Ok(block) = Block::parse(data) {
        let _ = (block.text(), block.index());
        for number in 0..block.len() {
            if let Some((_, body)) = block.packet(number) {
                assert!(body.end <= data.len());
            }
        }
    }
}
