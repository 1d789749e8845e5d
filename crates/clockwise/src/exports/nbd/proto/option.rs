//! The handshake phase: flags, options, and the replies to options.

use super::{
    BLOCK_BYTES_PREFERRED, PAYLOAD_BYTES_MAX, ProtocolError, QUERY_COUNT_MAX, Reader,
    STRING_BYTES_MAX,
};

const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Bytes of the client flags, which follow the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of the padding after the reply to `NBD_OPT_EXPORT_NAME`.
const EXPORT_NAME_PADDING_BYTES: usize = 124;

/// The only metadata context of this server.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The identifier of [`BASE_ALLOCATION`] in the transmission phase.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// The first bytes of the server.
#[must_use]
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// The padding after the reply to `NBD_OPT_EXPORT_NAME`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Padding {
    /// 124 zeros.
    Zeroes,
    /// No bytes: the client set `NBD_FLAG_C_NO_ZEROES`.
    None,
}

/// The client's flags after the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFlags {
    /// The client expects a reply to each option.
    pub is_fixed_newstyle: bool,
    /// The padding that the client expects.
    pub padding: Padding,
}

impl ClientFlags {
    /// Decodes the flags.
    ///
    /// # Errors
    /// A flag that the server did not offer, after which the protocol demands that the connection ends.
    pub fn decode(bytes: [u8; CLIENT_FLAGS_BYTES]) -> Result<Self, ProtocolError> {
        let flags = u32::from_be_bytes(bytes);
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        let has = |flag: u16| flags & u32::from(flag) != 0;
        if flags & !known != 0 {
            return Err(ProtocolError::ClientFlags(flags));
        }
        Ok(Self {
            is_fixed_newstyle: has(FLAG_FIXED_NEWSTYLE),
            padding: if has(FLAG_NO_ZEROES) {
                Padding::None
            } else {
                Padding::Zeroes
            },
        })
    }
}

/// The numbers of options.
pub mod code {
    #![allow(missing_docs, reason = "the names are the protocol's")]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// The header of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// One of [`code`], or an unknown option.
    pub code: u32,
    /// Number of data bytes that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// If it does not begin with the magic number.
    pub fn decode(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(bytes);
        let fields = (reader.u64(), reader.u32(), reader.u32());
        let (Some(magic), Some(code), Some(length)) = fields else {
            unreachable!("a header has {OPTION_HEADER_BYTES} bytes");
        };
        if magic != OPTION_MAGIC {
            return Err(ProtocolError::OptionMagic(magic));
        }
        Ok(Self { code, length })
    }
}

/// The information about an export that a client requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InfoRequests {
    /// `NBD_INFO_NAME`.
    pub name: bool,
    /// `NBD_INFO_DESCRIPTION`.
    pub description: bool,
    /// `NBD_INFO_BLOCK_SIZE`: the client will respect the announced block sizes.
    pub block_size: bool,
}

/// Queries for metadata contexts, reduced to those that this server can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaQuery {
    /// True if there was no query.
    pub is_empty: bool,
    /// True if there was a query for `base:allocation`.
    pub has_base_allocation: bool,
    /// True if there was a query for the wildcard `base:`.
    pub has_base_wildcard: bool,
}

/// A decoded option. Names are as sent by the client, and valid UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientOption<'a> {
    /// Begin transmission on this export, without error replies.
    ExportName(&'a str),
    /// End the handshake.
    Abort,
    /// List the exports.
    List,
    /// Send information about an export.
    Info(&'a str, InfoRequests),
    /// Send information about an export and begin transmission.
    Go(&'a str, InfoRequests),
    /// Use structured replies.
    StructuredReply,
    /// List the metadata contexts of an export.
    ListMeta(&'a str, MetaQuery),
    /// Select metadata contexts of an export.
    SetMeta(&'a str, MetaQuery),
    /// Another option.
    Unknown(u32),
}

/// The refusal of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionRefusal {
    /// The reply's type.
    pub kind: RefusalKind,
    /// An explanation for the user.
    pub text: &'static str,
}

/// The error replies to options that this server uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RefusalKind {
    /// Unknown option.
    Unsupported = (1 << 31) | 1,
    /// Not allowed at the moment.
    Policy = (1 << 31) | 2,
    /// Malformed.
    Invalid = (1 << 31) | 3,
    /// No such export.
    Unknown = (1 << 31) | 6,
    /// The server is shutting down.
    Shutdown = (1 << 31) | 7,
    /// Exceeds the server's limits.
    TooBig = (1 << 31) | 9,
}

const fn invalid(text: &'static str) -> OptionRefusal {
    OptionRefusal {
        kind: RefusalKind::Invalid,
        text,
    }
}

/// Decodes the data of option `code`.
///
/// # Errors
/// If the data is malformed for its option. An unknown option is decoded as such.
pub fn decode(code: u32, data: &[u8]) -> Result<ClientOption<'_>, OptionRefusal> {
    match code {
        code::EXPORT_NAME => name(data).map(ClientOption::ExportName),
        code::ABORT => Ok(ClientOption::Abort),
        code::LIST if data.is_empty() => Ok(ClientOption::List),
        code::LIST => Err(invalid("the list option carries no data")),
        code::INFO => info(data).map(|(name, wants)| ClientOption::Info(name, wants)),
        code::GO => info(data).map(|(name, wants)| ClientOption::Go(name, wants)),
        code::STRUCTURED_REPLY if data.is_empty() => Ok(ClientOption::StructuredReply),
        code::STRUCTURED_REPLY => Err(invalid("the structured reply option carries no data")),
        code::LIST_META_CONTEXT => {
            meta(data).map(|(name, query)| ClientOption::ListMeta(name, query))
        }
        code::SET_META_CONTEXT => {
            meta(data).map(|(name, query)| ClientOption::SetMeta(name, query))
        }
        other => Ok(ClientOption::Unknown(other)),
    }
}

fn name(bytes: &[u8]) -> Result<&str, OptionRefusal> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(invalid("an export's name is at most 4096 bytes long"));
    }
    core::str::from_utf8(bytes).map_err(|_| invalid("an export's name is UTF-8"))
}

fn info(data: &[u8]) -> Result<(&str, InfoRequests), OptionRefusal> {
    const SHORT: OptionRefusal = invalid("the option's data ends early");
    let mut reader = Reader::new(data);
    let name = name(reader.counted().ok_or(SHORT)?)?;
    let count = reader.u16().ok_or(SHORT)?;
    let mut wants = InfoRequests::default();
    for _ in 0..count {
        match reader.u16().ok_or(SHORT)? {
            INFO_NAME => wants.name = true,
            INFO_DESCRIPTION => wants.description = true,
            INFO_BLOCK_SIZE => wants.block_size = true,
            _ => {}
        }
    }
    if !reader.is_empty() {
        return Err(invalid("the option's data has extra bytes"));
    }
    Ok((name, wants))
}

fn meta(data: &[u8]) -> Result<(&str, MetaQuery), OptionRefusal> {
    const SHORT: OptionRefusal = invalid("the option's data ends early");
    let mut reader = Reader::new(data);
    let name = name(reader.counted().ok_or(SHORT)?)?;
    let count = reader.u32().ok_or(SHORT)?;
    if count > QUERY_COUNT_MAX {
        return Err(OptionRefusal {
            kind: RefusalKind::TooBig,
            text: "at most 64 metadata queries in one option",
        });
    }
    let mut query = MetaQuery {
        is_empty: count == 0,
        has_base_allocation: false,
        has_base_wildcard: false,
    };
    for _ in 0..count {
        let text = reader.counted().ok_or(SHORT)?;
        if text.len() > STRING_BYTES_MAX {
            return Err(invalid("a metadata query is at most 4096 bytes long"));
        }
        query.has_base_allocation |= text == BASE_ALLOCATION.as_bytes();
        query.has_base_wildcard |= text == b"base:";
    }
    if !reader.is_empty() {
        return Err(invalid("the option's data has extra bytes"));
    }
    Ok((name, query))
}

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

/// The description of an export for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Name of at most [`STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// A description for the user.
    pub description: String,
    /// Size in bytes, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Alignment of offsets and lengths in bytes: a power of two from
    /// [`BLOCK_BYTES_MIN`](super::BLOCK_BYTES_MIN) to
    /// [`BLOCK_BYTES_MIN_MAX`](super::BLOCK_BYTES_MIN_MAX).
    pub block_bytes: u32,
    /// Its [`super::transmission_flags`], except those that depend on the negotiation.
    pub flags: u16,
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    let length = u32::try_from(length).expect("replies are bounded by the length of strings");
    out.extend_from_slice(&length.to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Cuts a string at a character boundary to the longest that the protocol allows.
fn string(text: &str) -> &[u8] {
    let mut end = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

/// Appends an acknowledgement, which ends the replies to an option.
pub fn ack(out: &mut Vec<u8>, option: u32) {
    reply(out, option, REP_ACK, &[]);
}

/// Appends a refusal.
pub fn refuse(out: &mut Vec<u8>, option: u32, kind: RefusalKind, text: &str) {
    reply(out, option, kind as u32, &[string(text)]);
}

/// Appends an entry of the list of exports.
pub fn server(out: &mut Vec<u8>, option: u32, name: &str, description: &str) {
    let name = string(name);
    let length = (name.len() as u32).to_be_bytes();
    reply(
        out,
        option,
        REP_SERVER,
        &[&length, name, string(description)],
    );
}

/// Appends the information about an export. `flags` are the final transmission flags.
pub fn info_replies(
    out: &mut Vec<u8>,
    option: u32,
    export: &ExportInfo,
    flags: u16,
    wants: InfoRequests,
) {
    let mut info = |kind: u16, parts: [&[u8]; 3]| {
        reply(
            out,
            option,
            REP_INFO,
            &[&kind.to_be_bytes(), parts[0], parts[1], parts[2]],
        );
    };
    info(
        INFO_EXPORT,
        [&export.size_bytes.to_be_bytes(), &flags.to_be_bytes(), &[]],
    );
    if wants.name {
        info(INFO_NAME, [string(&export.name), &[], &[]]);
    }
    if wants.description {
        info(INFO_DESCRIPTION, [string(&export.description), &[], &[]]);
    }
    // Sent without a request too: some clients respect it although they do not request it.
    info(
        INFO_BLOCK_SIZE,
        [
            &export.block_bytes.to_be_bytes(),
            &BLOCK_BYTES_PREFERRED.max(export.block_bytes).to_be_bytes(),
            &PAYLOAD_BYTES_MAX.to_be_bytes(),
        ],
    );
}

/// Appends a metadata context.
pub fn meta_context(out: &mut Vec<u8>, option: u32, id: u32) {
    reply(
        out,
        option,
        REP_META_CONTEXT,
        &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()],
    );
}

/// Appends the reply to `NBD_OPT_EXPORT_NAME`.
pub fn export_name(out: &mut Vec<u8>, size_bytes: u64, flags: u16, padding: Padding) {
    out.extend_from_slice(&size_bytes.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    if padding == Padding::Zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
    }
}

#[cfg(test)]
mod tests;
