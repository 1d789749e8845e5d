//! Properties of the protocol code for all bytes of a client: entry points of the fuzz targets, and of the test that
//! replays their corpus.
//!
//! Each function panics if a property is violated.

use super::negotiate::{Exports, Negotiation, Step};
use super::proto::option::{ExportInfo, RefusalKind};
use super::proto::reply::ReplyFormat;
use super::proto::request::{self, Command, REQUEST_BYTES, RequestHeader, TransmissionParameters};
use super::proto::{
    BLOCK_BYTES_MIN, PAYLOAD_BYTES_MAX, PAYLOAD_SKIP_BYTES_MAX, ProtocolError, transmission_flags,
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

/// The result of a handshake: the last step, all bytes sent, and the number of bytes parsed.
type HandshakeResult = (Result<Step, ProtocolError>, Vec<u8>, usize);

fn negotiate(input: &[u8], piece: usize) -> HandshakeResult {
    let mut out = Vec::new();
    let mut negotiation = Negotiation::new(&mut out);
    let mut at = 0;
    while at < input.len() {
        let end = (at + piece).min(input.len());
        match negotiation.receive(&input[at..end], &TwoExports, &mut out) {
            Err(error) => return (Err(error), out, 0),
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

/// Runs a handshake. Its result does not depend on the pieces in which the bytes arrive, it parses at least one byte of
/// each piece, and its replies are well-formed and bounded.
///
/// # Panics
/// If one of these properties is violated.
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

/// Checks a sequence of replies, which the reply to `NBD_OPT_EXPORT_NAME` may end.
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

/// Checks the header of a request. An accepted request is inside the export, aligned, and within the limits of length.
///
/// # Panics
/// If one of these properties is violated.
pub fn nbd_request(data: &[u8]) {
    let Some((parameters, rest)) = data.split_first_chunk::<12>() else {
        return;
    };
    let Some(header) = rest.first_chunk::<REQUEST_BYTES>() else {
        return;
    };
    let [
        flags @ ..,
        structured,
        base_allocation,
        s0,
        s1,
        s2,
        s3,
        s4,
        s5,
        s6,
        s7,
    ] = *parameters;
    let block = u64::from(BLOCK_BYTES_MIN);
    let size_bytes = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]) / block * block;
    let parameters = TransmissionParameters {
        size_bytes,
        block_bytes: BLOCK_BYTES_MIN,
        flags: u16::from_be_bytes(flags),
        reply_format: if structured & 1 == 1 {
            ReplyFormat::Structured
        } else {
            ReplyFormat::Simple
        },
        has_base_allocation: base_allocation & 1 == 1,
    };
    let Ok(header) = RequestHeader::decode(header) else {
        return;
    };
    let Ok(command) = request::check(&header, &parameters) else {
        return;
    };
    let length = u64::from(header.length);
    match command {
        Command::Flush | Command::Disconnect => return,
        Command::Empty => assert_eq!(length, 0),
        Command::Read(_) | Command::Write(_) => {
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
        Command::Write(_) | Command::Trim(_) | Command::WriteZeroes { .. }
    );
    assert!(!writes || parameters.flags & transmission_flags::READ_ONLY == 0);
}
