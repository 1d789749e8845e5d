//! The handshake as a pure state machine: what the client sent goes in, what to send comes out.
//!
//! ```text
//! server greeting -> client flags -> { option -> replies }* -> transmission | end
//! ```
//!
//! What is kept between options is what they change: structured replies, and the export for which
//! `base:allocation` was selected. The empty name is the default export: the only volume of a pool
//! that has one, and an error that says so where there are several.
//!
//! Deliberately absent: time limits and buffering of replies, which are the server's.

use super::proto::option::{
    self, ClientFlags, ClientOption, ExportInfo, InfoRequests, MetaQuery, OptionHeader, RefusalKind,
};
use super::proto::request::Agreed;
use super::proto::{
    Fatal, OPTION_BYTES_MAX, OPTION_COUNT_MAX, OPTION_SKIP_BYTES_MAX, transmission_flags,
};

/// The exports that a client can choose from.
pub trait Exports {
    /// The names and descriptions of all.
    fn list(&self) -> Vec<(String, String)>;
    /// One by its exact name.
    fn find(&self, name: &str) -> Option<ExportInfo>;
    /// Prepares transmission on one.
    ///
    /// # Errors
    /// Why that is not possible now, for the client.
    fn open(&self, name: &str) -> Result<(), (RefusalKind, String)>;
}

/// What to do after some bytes of the client were taken in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Go on with the handshake.
    More,
    /// The handshake is done; what follows from the client are requests.
    Transmit(Start),
    /// Send what there is to send, then close.
    Close,
}

/// How transmission begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The canonical name of the export.
    pub name: String,
    /// What was agreed.
    pub agreed: Agreed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    ClientFlags,
    Header,
    Data(OptionHeader),
    /// The rest of an option that is too long to look at.
    Skip(OptionHeader, u32),
}

/// The state of one handshake.
#[derive(Clone, Debug)]
pub struct Negotiation {
    expect: Expect,
    collected: Vec<u8>,
    no_zeroes: bool,
    options: u32,
    structured: bool,
    /// The canonical name of the export for which `base:allocation` is selected.
    block_status_of: Option<String>,
}

impl Negotiation {
    /// Begins, appending the greeting to `out`.
    #[must_use]
    pub fn new(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&option::greeting());
        Self {
            expect: Expect::ClientFlags,
            collected: Vec::new(),
            no_zeroes: false,
            options: 0,
            structured: false,
            block_status_of: None,
        }
    }

    /// Takes bytes from the front of `input` up to the end of one option at most, appends to `out`
    /// what there is to answer, and says how many bytes it took and what to do next.
    ///
    /// # Errors
    /// When the connection must end without an answer.
    pub fn receive(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), Fatal> {
        let mut taken = 0;
        loop {
            if let Expect::Skip(header, left) = self.expect {
                let skipped = (left as usize).min(input.len() - taken);
                taken += skipped;
                let left = left - skipped as u32;
                self.expect = Expect::Skip(header, left);
                if left > 0 {
                    return Ok((taken, Step::More));
                }
                self.expect = Expect::Header;
                option::refuse(
                    out,
                    header.code,
                    RefusalKind::TooBig,
                    "the option is longer than 64 KiB",
                );
                return Ok((taken, Step::More));
            }
            let needed = match self.expect {
                Expect::ClientFlags => option::CLIENT_FLAGS_BYTES,
                Expect::Header => option::OPTION_HEADER_BYTES,
                Expect::Data(header) | Expect::Skip(header, _) => header.length as usize,
            };
            let moved = (needed - self.collected.len()).min(input.len() - taken);
            self.collected
                .extend_from_slice(&input[taken..taken + moved]);
            taken += moved;
            if self.collected.len() < needed {
                return Ok((taken, Step::More));
            }
            let bytes = core::mem::take(&mut self.collected);
            if let Some(step) = self.advance(&bytes, exports, out)? {
                return Ok((taken, step));
            }
        }
    }

    /// Acts on the bytes that were expected; `None` when they ask for more before an answer.
    fn advance(
        &mut self,
        bytes: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step>, Fatal> {
        match self.expect {
            Expect::ClientFlags => {
                let bytes = bytes.try_into().expect("collected to this length");
                self.no_zeroes = ClientFlags::decode(bytes)?.no_zeroes;
                self.expect = Expect::Header;
                Ok(None)
            }
            Expect::Header => {
                let bytes = bytes.try_into().expect("collected to this length");
                let header = OptionHeader::decode(bytes)?;
                self.expect = self.expect_data(header)?;
                Ok(None)
            }
            Expect::Data(header) => {
                self.expect = Expect::Header;
                self.option(header.code, bytes, exports, out).map(Some)
            }
            Expect::Skip(..) => unreachable!("skipped bytes are not collected"),
        }
    }

    fn expect_data(&mut self, header: OptionHeader) -> Result<Expect, Fatal> {
        let OptionHeader { code, length } = header;
        self.options += 1;
        if self.options > OPTION_COUNT_MAX {
            return Err(Fatal::OptionCount);
        }
        if length <= OPTION_BYTES_MAX {
            Ok(Expect::Data(header))
        } else if length > OPTION_SKIP_BYTES_MAX || code == option::code::EXPORT_NAME {
            Err(Fatal::OptionLength {
                option: code,
                length,
            })
        } else {
            Ok(Expect::Skip(header, length))
        }
    }

    fn option(
        &mut self,
        code: u32,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Fatal> {
        let decoded = match option::decode(code, data) {
            Ok(decoded) => decoded,
            Err(_) if code == option::code::EXPORT_NAME => return Err(Fatal::UnknownExport),
            Err(refusal) => {
                if code == option::code::SET_META_CONTEXT {
                    self.block_status_of = None;
                }
                option::refuse(out, code, refusal.kind, refusal.text);
                return Ok(Step::More);
            }
        };
        match decoded {
            ClientOption::ExportName(name) => {
                let export = find(exports, name).map_err(|_| Fatal::UnknownExport)?;
                exports
                    .open(&export.name)
                    .map_err(|_| Fatal::UnknownExport)?;
                let start = self.start(&export);
                option::export_name(out, export.size_bytes, start.agreed.flags, self.no_zeroes);
                return Ok(Step::Transmit(start));
            }
            ClientOption::Abort => {
                option::ack(out, code);
                return Ok(Step::Close);
            }
            ClientOption::List => {
                for (name, description) in exports.list() {
                    option::server(out, code, &name, &description);
                }
                option::ack(out, code);
            }
            ClientOption::Info(name, wants) | ClientOption::Go(name, wants) => {
                let goes = matches!(decoded, ClientOption::Go(..));
                return Ok(self.info(code, name, wants, goes, exports, out));
            }
            ClientOption::StructuredReply => {
                self.structured = true;
                option::ack(out, code);
            }
            ClientOption::ListMeta(name, query) => self.list_meta(code, name, query, exports, out),
            ClientOption::SetMeta(name, query) => self.set_meta(code, name, query, exports, out),
            ClientOption::Unknown(_) => {
                option::refuse(
                    out,
                    code,
                    RefusalKind::Unsupported,
                    "this option is not supported",
                );
            }
        }
        Ok(Step::More)
    }

    fn info(
        &self,
        code: u32,
        name: &str,
        wants: InfoRequests,
        goes: bool,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Step {
        let export = match find(exports, name) {
            Ok(export) => export,
            Err(text) => {
                option::refuse(out, code, RefusalKind::Unknown, &text);
                return Step::More;
            }
        };
        if goes && let Err((kind, text)) = exports.open(&export.name) {
            option::refuse(out, code, kind, &text);
            return Step::More;
        }
        let start = self.start(&export);
        option::info_replies(out, code, &export, start.agreed.flags, wants);
        option::ack(out, code);
        if goes {
            Step::Transmit(start)
        } else {
            Step::More
        }
    }

    fn list_meta(
        &self,
        code: u32,
        name: &str,
        query: MetaQuery,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) {
        match find(exports, name) {
            Ok(_) => {
                if query.none || query.base_any || query.base_allocation {
                    option::meta_context(out, code, 0);
                }
                option::ack(out, code);
            }
            Err(text) => option::refuse(out, code, RefusalKind::Unknown, &text),
        }
    }

    fn set_meta(
        &mut self,
        code: u32,
        name: &str,
        query: MetaQuery,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) {
        self.block_status_of = None;
        if !self.structured {
            let text = "negotiate structured replies first";
            option::refuse(out, code, RefusalKind::Invalid, text);
            return;
        }
        match find(exports, name) {
            Ok(export) => {
                if query.base_allocation {
                    option::meta_context(out, code, option::BASE_ALLOCATION_ID);
                    self.block_status_of = Some(export.name);
                }
                option::ack(out, code);
            }
            Err(text) => option::refuse(out, code, RefusalKind::Unknown, &text),
        }
    }

    fn start(&self, export: &ExportInfo) -> Start {
        let mut flags = export.flags | transmission_flags::HAS_FLAGS;
        if self.structured {
            flags |= transmission_flags::SEND_DF;
        }
        let agreed = Agreed {
            size_bytes: export.size_bytes,
            block_bytes: export.block_bytes,
            flags,
            structured: self.structured,
            block_status: self.block_status_of.as_ref() == Some(&export.name),
        };
        Start {
            name: export.name.clone(),
            agreed,
        }
    }
}

/// The export of that name, the empty one being the only export there is, or what to tell.
fn find(exports: &dyn Exports, name: &str) -> Result<ExportInfo, String> {
    let gone = |name: &str| format!("there is no volume named '{name}'");
    if !name.is_empty() {
        return exports.find(name).ok_or_else(|| gone(name));
    }
    match exports.list().as_slice() {
        [(only, _)] => exports.find(only).ok_or_else(|| gone(only)),
        [] => Err("the pool has no volumes".to_owned()),
        several => Err(format!(
            "name the volume to export; the pool has {}",
            several.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::nbd::proto::option::code;

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

    /// Feeds `input` in pieces of `piece` bytes; the last step, what was sent and what is left.
    fn run(pool: &Pool, input: &[u8], piece: usize) -> Result<(Step, Vec<u8>, usize), Fatal> {
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
    fn a_modern_client_is_led_to_transmission_however_its_bytes_arrive() {
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
        let (Step::Transmit(start), _, left) = whole else {
            panic!("{whole:?}")
        };
        assert_eq!((start.name.as_str(), left), ("b", 7));
        assert!(start.agreed.structured && start.agreed.block_status);
        assert_ne!(start.agreed.flags & transmission_flags::SEND_DF, 0);
    }

    #[test]
    fn contexts_hold_only_for_the_export_they_were_selected_for() {
        let pool = Pool(vec!["a", "b"]);
        let mut input = vec![0, 0, 0, 3];
        input.extend(option_bytes(code::STRUCTURED_REPLY, &[]));
        input.extend(select("a"));
        input.extend(go("b"));
        let (Step::Transmit(start), ..) = run(&pool, &input, 64).unwrap() else {
            panic!()
        };
        assert!(!start.agreed.block_status);
    }

    #[test]
    fn without_structured_replies_no_context_can_be_selected() {
        let pool = Pool(vec!["a"]);
        let mut input = vec![0, 0, 0, 3];
        input.extend(select("a"));
        input.extend(go("a"));
        let (Step::Transmit(start), ..) = run(&pool, &input, 64).unwrap() else {
            panic!()
        };
        assert!(!start.agreed.block_status);
        assert_eq!(start.agreed.flags & transmission_flags::SEND_DF, 0);
    }

    #[test]
    fn the_empty_name_is_the_only_volume() {
        let mut input = vec![0, 0, 0, 3];
        input.extend(go(""));
        let (step, ..) = run(&Pool(vec!["only"]), &input, 64).unwrap();
        assert!(matches!(step, Step::Transmit(start) if start.name == "only"));
        for pool in [Pool(vec![]), Pool(vec!["a", "b"])] {
            let (step, out, _) = run(&pool, &input, 64).unwrap();
            assert_eq!(step, Step::More);
            assert_eq!(out[12..16], [0x80, 0, 0, 6]);
        }
    }

    #[test]
    fn an_export_that_cannot_be_opened_is_refused_with_the_reason() {
        let pool = Pool(vec!["full"]);
        let mut input = vec![0, 0, 0, 3];
        input.extend(go("full"));
        let (step, out, _) = run(&pool, &input, 64).unwrap();
        assert_eq!(step, Step::More);
        assert_eq!(out[12..16], [0x80, 0, 0, 2]);
        assert!(out.ends_with(b"too many"));
    }

    #[test]
    fn the_old_way_in_works_and_ends_the_connection_for_what_is_not_there() {
        let pool = Pool(vec!["a"]);
        let mut input = vec![0, 0, 0, 1];
        input.extend(option_bytes(code::EXPORT_NAME, b"a"));
        let (step, out, _) = run(&pool, &input, 64).unwrap();
        assert!(matches!(step, Step::Transmit(_)));
        assert_eq!(out.len(), 134);
        let mut input = vec![0, 0, 0, 1];
        input.extend(option_bytes(code::EXPORT_NAME, b"c"));
        assert_eq!(run(&pool, &input, 64), Err(Fatal::UnknownExport));
    }

    #[test]
    fn options_that_are_unknown_or_too_long_are_refused_and_the_handshake_goes_on() {
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
    fn enormous_options_and_endless_ones_end_the_connection() {
        let pool = Pool(vec!["a"]);
        let mut input = vec![0, 0, 0, 3];
        input.extend(option_bytes(77, &[]));
        let at = input.len() - 4;
        input[at..].copy_from_slice(&u32::MAX.to_be_bytes());
        let fatal = Fatal::OptionLength {
            option: 77,
            length: u32::MAX,
        };
        assert_eq!(run(&pool, &input, 64), Err(fatal));

        let mut input = vec![0, 0, 0, 3];
        for _ in 0..=OPTION_COUNT_MAX {
            input.extend(option_bytes(code::LIST, &[]));
        }
        assert_eq!(run(&pool, &input, 64), Err(Fatal::OptionCount));
    }
}
