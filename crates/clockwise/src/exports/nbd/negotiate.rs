//! The handshake as a pure state machine: bytes of the client in, bytes of the server out.
//!
//! ```text
//! server greeting -> client flags -> { option -> replies }* -> transmission | end
//! ```
//!
//! Options change two things: structured replies, and the export for which `base:allocation` is selected. The empty
//! name selects the default export: the only volume of a pool that has one. A pool with several volumes refuses it.
//!
//! Deliberately absent: time limits and buffering of replies, which are the server's.

use super::proto::option::{
    self, ClientFlags, ClientOption, ExportInfo, InfoRequests, MetaQuery, OptionHeader, Padding,
    RefusalKind,
};
use super::proto::reply::ReplyFormat;
use super::proto::request::TransmissionParameters;
use super::proto::{
    OPTION_BYTES_MAX, OPTION_SKIP_BYTES_MAX, OPTIONS_BYTES_MAX, ProtocolError, transmission_flags,
};

/// The exports that a client can choose from.
pub trait Exports {
    /// The names and descriptions of all exports.
    fn list(&self) -> Vec<(String, String)>;
    /// The export of exactly this name.
    fn find(&self, name: &str) -> Option<ExportInfo>;
    /// Prepares transmission on an export.
    ///
    /// # Errors
    /// The refusal for the client.
    fn open(&self, name: &str) -> Result<(), (RefusalKind, String)>;
}

/// The next step of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Continue the handshake.
    More,
    /// Begin transmission. The following bytes of the client are requests.
    Transmit(SelectedExport),
    /// Send all replies, then close.
    Close,
}

/// The export that the client has selected for transmission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelectedExport {
    /// The canonical name of the export.
    pub name: String,
    /// The result of the negotiation.
    pub parameters: TransmissionParameters,
}

/// The next bytes of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InputState {
    ClientFlags,
    Header,
    Data(OptionHeader),
    /// The rest of an option that exceeds the limit, in bytes.
    Skip(OptionHeader, u32),
}

/// The state of one handshake.
#[derive(Clone, Debug)]
pub struct Negotiation {
    state: InputState,
    collected: Vec<u8>,
    padding: Padding,
    /// Bytes of all options so far.
    options_bytes: u64,
    reply_format: ReplyFormat,
    /// The canonical name of the export for which `base:allocation` is selected.
    base_allocation_of: Option<String>,
}

impl Negotiation {
    /// Begins a handshake and appends the greeting to `out`.
    #[must_use]
    pub fn new(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&option::greeting());
        Self {
            state: InputState::ClientFlags,
            collected: Vec::new(),
            padding: Padding::Zeroes,
            options_bytes: 0,
            reply_format: ReplyFormat::Simple,
            base_allocation_of: None,
        }
    }

    /// Parses `input` up to the end of at most one option, and appends the replies to `out`. Returns the number of
    /// bytes parsed and the next step.
    ///
    /// # Errors
    /// If the connection must end without a reply.
    pub fn receive(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), ProtocolError> {
        let mut taken = 0;
        loop {
            let needed = match self.state {
                InputState::Skip(header, left) => {
                    let skipped = (left as usize).min(input.len() - taken);
                    self.skip(header, left - skipped as u32, out);
                    return Ok((taken + skipped, Step::More));
                }
                InputState::ClientFlags => option::CLIENT_FLAGS_BYTES,
                InputState::Header => option::OPTION_HEADER_BYTES,
                InputState::Data(header) => header.length as usize,
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

    /// Continues after skipped bytes; `left` bytes are still to come. The refusal follows the last one.
    fn skip(&mut self, header: OptionHeader, left: u32, out: &mut Vec<u8>) {
        if left > 0 {
            self.state = InputState::Skip(header, left);
            return;
        }
        self.state = InputState::Header;
        option::refuse(
            out,
            header.code,
            RefusalKind::TooBig,
            "the option is longer than 64 KiB",
        );
    }

    /// Acts on complete bytes. Returns `None` if more bytes are needed before a reply.
    fn advance(
        &mut self,
        bytes: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step>, ProtocolError> {
        match self.state {
            InputState::ClientFlags => {
                let bytes = bytes.try_into().expect("collected to this length");
                self.padding = ClientFlags::decode(bytes)?.padding;
                self.state = InputState::Header;
                Ok(None)
            }
            InputState::Header => {
                let bytes = bytes.try_into().expect("collected to this length");
                let header = OptionHeader::decode(bytes)?;
                self.state = self.expect_data(header)?;
                Ok(None)
            }
            InputState::Data(header) => {
                self.state = InputState::Header;
                self.option(header.code, bytes, exports, out).map(Some)
            }
            InputState::Skip(..) => unreachable!("skipped bytes are not collected"),
        }
    }

    fn expect_data(&mut self, header: OptionHeader) -> Result<InputState, ProtocolError> {
        let OptionHeader { code, length } = header;
        let is_long = length > OPTION_BYTES_MAX;
        if length > OPTION_SKIP_BYTES_MAX || (is_long && code == option::code::EXPORT_NAME) {
            return Err(ProtocolError::OptionLength {
                option: code,
                length,
            });
        }
        self.options_bytes += option::OPTION_HEADER_BYTES as u64 + u64::from(length);
        if self.options_bytes > OPTIONS_BYTES_MAX {
            return Err(ProtocolError::OptionsLength);
        }
        Ok(match is_long {
            true => InputState::Skip(header, length),
            false => InputState::Data(header),
        })
    }

    fn option(
        &mut self,
        code: u32,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        let decoded = match option::decode(code, data) {
            Ok(decoded) => decoded,
            Err(_) if code == option::code::EXPORT_NAME => {
                return Err(ProtocolError::UnknownExport);
            }
            Err(refusal) => {
                if code == option::code::SET_META_CONTEXT {
                    self.base_allocation_of = None;
                }
                option::refuse(out, code, refusal.kind, refusal.text);
                return Ok(Step::More);
            }
        };
        match decoded {
            ClientOption::ExportName(name) => return self.export_name(name, exports, out),
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
            ClientOption::Info(name, wants) => match find(exports, name) {
                Ok(export) => self.send_info(code, &export, wants, out),
                Err(text) => option::refuse(out, code, RefusalKind::Unknown, &text),
            },
            ClientOption::Go(name, wants) => return Ok(self.go(code, name, wants, exports, out)),
            ClientOption::StructuredReply => {
                self.reply_format = ReplyFormat::Structured;
                option::ack(out, code);
            }
            ClientOption::ListMeta(name, query) => list_meta(code, name, query, exports, out),
            ClientOption::SetMeta(name, query) => self.set_meta(code, name, query, exports, out),
            ClientOption::Unknown(_) => {
                let text = "this option is not supported";
                option::refuse(out, code, RefusalKind::Unsupported, text);
            }
        }
        Ok(Step::More)
    }

    fn export_name(
        &self,
        name: &str,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        let export = find(exports, name).map_err(|_| ProtocolError::UnknownExport)?;
        exports
            .open(&export.name)
            .map_err(|_| ProtocolError::UnknownExport)?;
        let parameters = self.parameters(&export);
        option::export_name(out, export.size_bytes, parameters.flags, self.padding);
        Ok(Step::Transmit(SelectedExport {
            name: export.name,
            parameters,
        }))
    }

    fn send_info(&self, code: u32, export: &ExportInfo, wants: InfoRequests, out: &mut Vec<u8>) {
        let flags = self.parameters(export).flags;
        option::info_replies(out, code, export, flags, wants);
        option::ack(out, code);
    }

    fn go(
        &self,
        code: u32,
        name: &str,
        wants: InfoRequests,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Step {
        let found = find(exports, name).map_err(|text| (RefusalKind::Unknown, text));
        let opened = found.and_then(|export| exports.open(&export.name).map(|()| export));
        match opened {
            Ok(export) => {
                self.send_info(code, &export, wants, out);
                Step::Transmit(SelectedExport {
                    parameters: self.parameters(&export),
                    name: export.name,
                })
            }
            Err((kind, text)) => {
                option::refuse(out, code, kind, &text);
                Step::More
            }
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
        self.base_allocation_of = None;
        if self.reply_format == ReplyFormat::Simple {
            let text = "negotiate structured replies first";
            option::refuse(out, code, RefusalKind::Invalid, text);
            return;
        }
        match find(exports, name) {
            Ok(export) => {
                if query.has_base_allocation {
                    option::meta_context(out, code, option::BASE_ALLOCATION_ID);
                    self.base_allocation_of = Some(export.name);
                }
                option::ack(out, code);
            }
            Err(text) => option::refuse(out, code, RefusalKind::Unknown, &text),
        }
    }

    fn parameters(&self, export: &ExportInfo) -> TransmissionParameters {
        let mut flags = export.flags | transmission_flags::HAS_FLAGS;
        if self.reply_format == ReplyFormat::Structured {
            flags |= transmission_flags::SEND_DF;
        }
        TransmissionParameters {
            size_bytes: export.size_bytes,
            block_bytes: export.block_bytes,
            flags,
            reply_format: self.reply_format,
            has_base_allocation: self.base_allocation_of.as_ref() == Some(&export.name),
        }
    }
}

fn list_meta(code: u32, name: &str, query: MetaQuery, exports: &dyn Exports, out: &mut Vec<u8>) {
    match find(exports, name) {
        Ok(_) => {
            if query.is_empty || query.has_base_wildcard || query.has_base_allocation {
                option::meta_context(out, code, 0);
            }
            option::ack(out, code);
        }
        Err(text) => option::refuse(out, code, RefusalKind::Unknown, &text),
    }
}

/// Finds an export. The empty name is the only export of the pool.
///
/// # Errors
/// A text for the client.
fn find(exports: &dyn Exports, name: &str) -> Result<ExportInfo, String> {
    let unknown = |name: &str| format!("there is no volume named '{name}'");
    if !name.is_empty() {
        return exports.find(name).ok_or_else(|| unknown(name));
    }
    match exports.list().as_slice() {
        [(only, _)] => exports.find(only).ok_or_else(|| unknown(only)),
        [] => Err("the pool has no volumes".to_owned()),
        several => Err(format!(
            "name the volume to export; the pool has {}",
            several.len()
        )),
    }
}

#[cfg(test)]
mod tests;
