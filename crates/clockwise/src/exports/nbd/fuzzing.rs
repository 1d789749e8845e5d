//! What must hold for any bytes a client can send: the entry points of the fuzz targets, and of the
//! test that replays their corpus.
//!
//! Each function panics when something does not hold.

use super::negotiate::{Exports, Negotiation, Step};
use super::proto::option::{ExportInfo, RefusalKind};
use super::proto::request::{self, Agreed, Command, REQUEST_BYTES, RequestHeader};
use super::proto::{
    BLOCK_BYTES_MIN, Fatal, PAYLOAD_BYTES_MAX, PAYLOAD_SKIP_BYTES_MAX, transmission_flags,
};

/// Two exports, one of which cannot be opened.
struct TwoExports;

impl Exports for TwoExports {
    fn list(&self) -> Vec<(String, String)> {
        ["a", "full"]
            .map(|name| (name.to_owned(), "a volume".to_owned()))
            .to_vec()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        ["a", "full"].contains(&name).then(|| ExportInfo {
            name: name.to_owned(),
            description: "a volume".to_owned(),
            size_bytes: 1 << 20,
            block_bytes: BLOCK_BYTES_MIN,
            flags: transmission_flags::HAS_FLAGS,
        })
    }

    fn open(&self, name: &str) -> Result<(), (RefusalKind, String)> {
        if name == "a" {
            Ok(())
        } else {
            Err((RefusalKind::Policy, "full".to_owned()))
        }
    }
}

/// How a handshake came out: the last step, everything sent, and how much was taken in.
type Outcome = (Result<Step, Fatal>, Vec<u8>, usize);

fn negotiate(input: &[u8], piece: usize) -> Outcome {
    let mut out = Vec::new();
    let mut negotiation = Negotiation::new(&mut out);
    let mut at = 0;
    while at < input.len() {
        let end = (at + piece).min(input.len());
        match negotiation.receive(&input[at..end], &TwoExports, &mut out) {
            Err(fatal) => return (Err(fatal), out, 0),
            Ok((taken, step)) => {
                assert!(
                    taken > 0 && taken <= end - at,
                    "{taken} of {} bytes taken",
                    end - at
                );
                at += taken;
                if step != Step::More {
                    return (Ok(step), out, at);
                }
            }
        }
    }
    (Ok(Step::More), out, at)
}

/// A whole handshake: it comes out the same however the bytes arrive, takes in what it was given,
/// and answers with a bounded number of well-formed replies.
///
/// # Panics
/// When that does not hold.
pub fn nbd_option(data: &[u8]) {
    let Some((&piece, input)) = data.split_first() else {
        return;
    };
    let whole = negotiate(input, usize::MAX / 2);
    assert_eq!(
        whole,
        negotiate(input, usize::from(piece) + 1),
        "pieces of {piece} + 1 bytes"
    );
    let (result, out, _) = whole;
    check_replies(&out[18..], matches!(result, Ok(Step::Transmit(_))));
}

/// Replies, one after the other; after the last one may come the answer to the old way in.
fn check_replies(mut bytes: &[u8], transmits: bool) {
    const REPLY_HEADER_BYTES: usize = 20;
    while !bytes.is_empty() {
        if transmits && [10, 134].contains(&bytes.len()) {
            return;
        }
        assert_eq!(
            bytes[..8],
            0x0003_e889_0455_65a9_u64.to_be_bytes(),
            "not a reply"
        );
        let length: [u8; 4] = bytes[16..REPLY_HEADER_BYTES]
            .try_into()
            .expect("four bytes");
        let length = u32::from_be_bytes(length) as usize;
        assert!(
            length <= 2 * super::proto::STRING_BYTES_MAX + 16,
            "{length} bytes in a reply"
        );
        bytes = &bytes[REPLY_HEADER_BYTES + length..];
    }
}

/// A request's header under what was agreed: a request that is let through is in the export,
/// aligned, and no longer than may be.
///
/// # Panics
/// When that does not hold.
pub fn nbd_request(data: &[u8]) {
    let Some((agreed, rest)) = data.split_first_chunk::<12>() else {
        return;
    };
    let Some(header) = rest.first_chunk::<REQUEST_BYTES>() else {
        return;
    };
    let [
        flags @ ..,
        structured,
        block_status,
        s0,
        s1,
        s2,
        s3,
        s4,
        s5,
        s6,
        s7,
    ] = *agreed;
    let block = u64::from(BLOCK_BYTES_MIN);
    let size_bytes = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]) / block * block;
    let agreed = Agreed {
        size_bytes,
        block_bytes: BLOCK_BYTES_MIN,
        flags: u16::from_be_bytes(flags),
        structured: structured & 1 == 1,
        block_status: block_status & 1 == 1,
    };
    let Ok(header) = RequestHeader::decode(header) else {
        return;
    };
    let Ok(command) = request::check(&header, &agreed) else {
        return;
    };
    let length = u64::from(header.length);
    match command {
        Command::Flush | Command::Disconnect => return,
        Command::Nothing => assert_eq!(length, 0),
        Command::Read { .. } | Command::Write { .. } => {
            assert!(header.length <= PAYLOAD_BYTES_MAX && length > 0);
        }
        _ => assert!(length > 0),
    }
    assert!(header.offset.is_multiple_of(block) && length.is_multiple_of(block));
    assert!(
        header
            .offset
            .checked_add(length)
            .is_some_and(|end| end <= size_bytes)
    );
    assert!(header.payload_bytes() <= PAYLOAD_SKIP_BYTES_MAX);
    let writes = matches!(
        command,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
    );
    assert!(!writes || agreed.flags & transmission_flags::READ_ONLY == 0);
}
