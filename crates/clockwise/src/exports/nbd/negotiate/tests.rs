//! Handshakes of correct and of incorrect clients.

use super::*;
use crate::exports::nbd::proto::option::code;

struct Pool(Vec<&'static str>);

impl Exports for Pool {
    fn list(&self) -> Vec<(String, String)> {
        self.0
            .iter()
            .map(|name| ((*name).to_owned(), "a volume".to_owned()))
            .collect()
    }
    fn find(&self, name: &str) -> Option<ExportInfo> {
        self.0.contains(&name).then(|| ExportInfo {
            name: name.to_owned(),
            description: "a volume".to_owned(),
            size_bytes: 1 << 20,
            block_bytes: 512,
            flags: transmission_flags::SEND_FLUSH,
        })
    }
    fn open(&self, name: &str) -> Result<(), (RefusalKind, String)> {
        match name {
            "full" => Err((RefusalKind::Policy, "too many".to_owned())),
            _ => Ok(()),
        }
    }
}

fn option_bytes(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&[0, 0]);
    option_bytes(code::GO, &data)
}

fn select(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&1u32.to_be_bytes());
    data.extend_from_slice(&15u32.to_be_bytes());
    data.extend_from_slice(b"base:allocation");
    option_bytes(code::SET_META_CONTEXT, &data)
}

/// Feeds `input` in pieces of `piece` bytes. Returns the last step, the bytes sent and the number of bytes left.
fn run(pool: &Pool, input: &[u8], piece: usize) -> Result<(Step, Vec<u8>, usize), ProtocolError> {
    let mut out = Vec::new();
    let mut negotiation = Negotiation::new(&mut out);
    out.clear();
    let mut at = 0;
    let mut step = Step::More;
    while at < input.len() && step == Step::More {
        let end = (at + piece).min(input.len());
        let (taken, next) = negotiation.receive(&input[at..end], pool, &mut out)?;
        at += taken;
        step = next;
    }
    Ok((step, out, input.len() - at))
}

#[test]
fn handshake_does_not_depend_on_the_pieces_received() {
    let pool = Pool(vec!["a", "b"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(option_bytes(code::STRUCTURED_REPLY, &[]));
    input.extend(select("b"));
    input.extend(go("b"));
    input.extend_from_slice(b"request");
    let whole = run(&pool, &input, usize::MAX / 2).unwrap();
    for piece in 1..60 {
        assert_eq!(
            run(&pool, &input, piece).unwrap(),
            whole,
            "pieces of {piece} bytes"
        );
    }
    let (Step::Transmit(selected), _, left) = whole else {
        panic!("{whole:?}")
    };
    assert_eq!((selected.name.as_str(), left), ("b", 7));
    assert_eq!(selected.parameters.reply_format, ReplyFormat::Structured);
    assert!(selected.parameters.has_base_allocation);
    assert_ne!(selected.parameters.flags & transmission_flags::SEND_DF, 0);
}

#[test]
fn context_holds_only_for_its_export() {
    let pool = Pool(vec!["a", "b"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(option_bytes(code::STRUCTURED_REPLY, &[]));
    input.extend(select("a"));
    input.extend(go("b"));
    let (Step::Transmit(selected), ..) = run(&pool, &input, 64).unwrap() else {
        panic!()
    };
    assert!(!selected.parameters.has_base_allocation);
}

#[test]
fn context_needs_structured_replies() {
    let pool = Pool(vec!["a"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(select("a"));
    input.extend(go("a"));
    let (Step::Transmit(selected), ..) = run(&pool, &input, 64).unwrap() else {
        panic!()
    };
    assert!(!selected.parameters.has_base_allocation);
    assert_eq!(selected.parameters.flags & transmission_flags::SEND_DF, 0);
}

#[test]
fn empty_name_is_the_only_volume() {
    let mut input = vec![0, 0, 0, 3];
    input.extend(go(""));
    let (step, ..) = run(&Pool(vec!["only"]), &input, 64).unwrap();
    assert!(matches!(step, Step::Transmit(selected) if selected.name == "only"));
    for pool in [Pool(vec![]), Pool(vec!["a", "b"])] {
        let (step, out, _) = run(&pool, &input, 64).unwrap();
        assert_eq!(step, Step::More);
        assert_eq!(out[12..16], [0x80, 0, 0, 6]);
    }
}

#[test]
fn export_that_cannot_be_opened_is_refused_with_the_reason() {
    let pool = Pool(vec!["full"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(go("full"));
    let (step, out, _) = run(&pool, &input, 64).unwrap();
    assert_eq!(step, Step::More);
    assert_eq!(out[12..16], [0x80, 0, 0, 2]);
    assert!(out.ends_with(b"too many"));
}

#[test]
fn export_name_option_begins_transmission_or_ends_the_connection() {
    let pool = Pool(vec!["a"]);
    let mut input = vec![0, 0, 0, 1];
    input.extend(option_bytes(code::EXPORT_NAME, b"a"));
    let (step, out, _) = run(&pool, &input, 64).unwrap();
    assert!(matches!(step, Step::Transmit(_)));
    assert_eq!(out.len(), 134);
    let mut input = vec![0, 0, 0, 1];
    input.extend(option_bytes(code::EXPORT_NAME, b"c"));
    assert_eq!(run(&pool, &input, 64), Err(ProtocolError::UnknownExport));
}

#[test]
fn unknown_and_long_options_are_refused_and_the_handshake_continues() {
    let pool = Pool(vec!["a"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(option_bytes(code::STARTTLS, &[]));
    input.extend(option_bytes(77, &vec![1; OPTION_BYTES_MAX as usize + 1]));
    input.extend(option_bytes(code::ABORT, &[]));
    let (step, out, left) = run(&pool, &input, 1000).unwrap();
    assert_eq!((step, left), (Step::Close, 0));
    assert_eq!(out[8..16], [0, 0, 0, 5, 0x80, 0, 0, 1]);
    assert_eq!(out[out.len() - 12..], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn enormous_options_and_too_many_options_end_the_connection() {
    let pool = Pool(vec!["a"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(option_bytes(77, &[]));
    let at = input.len() - 4;
    input[at..].copy_from_slice(&u32::MAX.to_be_bytes());
    let fatal = ProtocolError::OptionLength {
        option: 77,
        length: u32::MAX,
    };
    assert_eq!(run(&pool, &input, 64), Err(fatal));

    // The last option exceeds the limit.
    let mut input = vec![0, 0, 0, 3];
    let longest = option_bytes(77, &vec![1; OPTION_BYTES_MAX as usize]);
    let count = OPTIONS_BYTES_MAX as usize / longest.len();
    input.extend(longest.repeat(count));
    assert!(run(&pool, &input, 1 << 16).is_ok());
    input.extend(&longest);
    assert_eq!(
        run(&pool, &input, 1 << 16),
        Err(ProtocolError::OptionsLength)
    );
}

#[test]
fn client_may_query_every_volume_of_the_largest_pool() {
    let pool = Pool(vec!["a"]);
    let mut input = vec![0, 0, 0, 3];
    input.extend(option_bytes(code::STRUCTURED_REPLY, &[]));
    input.extend(option_bytes(code::LIST, &[]));
    let name = "v".repeat(255);
    let info = |code| {
        let mut bytes = go(&name);
        bytes[8..12].copy_from_slice(&u32::to_be_bytes(code));
        bytes
    };
    let mut list = select(&name);
    list[8..12].copy_from_slice(&code::LIST_META_CONTEXT.to_be_bytes());
    let of_one = [select(&name), info(code::INFO), list].concat();
    input.extend(of_one.repeat(8_192));
    input.extend(go("a"));
    let (step, ..) = run(&pool, &input, 1 << 16).unwrap();
    assert!(matches!(step, Step::Transmit(_)));
}
