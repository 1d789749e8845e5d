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
    Fatal, OPTION_BYTES_MAX, OPTION_SKIP_BYTES_MAX, OPTIONS_BYTES_MAX, transmission_flags,
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
    /// How many bytes of options have come.
    options_bytes: u64,
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
            options_bytes: 0,
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
        let is_long = length > OPTION_BYTES_MAX;
        if length > OPTION_SKIP_BYTES_MAX || (is_long && code == option::code::EXPORT_NAME) {
            return Err(Fatal::OptionLength {
                option: code,
                length,
            });
        }
        self.options_bytes += option::OPTION_HEADER_BYTES as u64 + u64::from(length);
        if self.options_bytes > OPTIONS_BYTES_MAX {
            return Err(Fatal::OptionsLength);
        }
        Ok(match is_long {
            true => Expect::Skip(header, length),
            false => Expect::Data(header),
        })
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
mod tests;
