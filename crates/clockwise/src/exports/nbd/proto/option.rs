//! The handshake: flags, options, and the replies to options.

use super::{
    BLOCK_BYTES_PREFERRED, Fatal, PAYLOAD_BYTES_MAX, QUERY_COUNT_MAX, Reader, STRING_BYTES_MAX,
};

const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Bytes of the client's answer to the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Zeros after the reply to `NBD_OPT_EXPORT_NAME`, for clients that insist on them.
const EXPORT_NAME_PADDING_BYTES: usize = 124;

/// The only metadata context there is.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number by which [`BASE_ALLOCATION`] goes in the transmission phase.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// What the server says first.
#[must_use]
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// What the client answered to the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFlags {
    /// The client knows that options are answered.
    pub fixed_newstyle: bool,
    /// The client does not want the padding after `NBD_OPT_EXPORT_NAME`.
    pub no_zeroes: bool,
}

impl ClientFlags {
    /// Decodes them.
    ///
    /// # Errors
    /// A flag that was not offered, after which the protocol demands that the connection ends.
    pub fn decode(bytes: [u8; CLIENT_FLAGS_BYTES]) -> Result<Self, Fatal> {
        let flags = u32::from_be_bytes(bytes);
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return Err(Fatal::ClientFlags(flags));
        }
        Ok(Self {
            fixed_newstyle: flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0,
            no_zeroes: flags & u32::from(FLAG_NO_ZEROES) != 0,
        })
    }
}

/// What an option asks for, by number.
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

/// The fixed part in front of an option's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// One of [`code`], or anything else.
    pub code: u32,
    /// How many bytes of data follow.
    pub length: u32,
}

impl OptionHeader {
    /// Decodes it.
    ///
    /// # Errors
    /// When it does not begin with the magic number.
    pub fn decode(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<Self, Fatal> {
        let [
            m0,
            m1,
            m2,
            m3,
            m4,
            m5,
            m6,
            m7,
            c0,
            c1,
            c2,
            c3,
            l0,
            l1,
            l2,
            l3,
        ] = *bytes;
        let magic = u64::from_be_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
        if magic != OPTION_MAGIC {
            return Err(Fatal::OptionMagic(magic));
        }
        Ok(Self {
            code: u32::from_be_bytes([c0, c1, c2, c3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}

/// What a client wants to be told about an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InfoRequests {
    /// `NBD_INFO_NAME`.
    pub name: bool,
    /// `NBD_INFO_DESCRIPTION`.
    pub description: bool,
    /// `NBD_INFO_BLOCK_SIZE`: the client will respect the limits it is told.
    pub block_size: bool,
}

/// Queries for metadata contexts, reduced to what can be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaQuery {
    /// Whether no query was sent at all.
    pub none: bool,
    /// Whether `base:allocation` was named.
    pub base_allocation: bool,
    /// Whether the wildcard `base:` was named.
    pub base_any: bool,
}

/// A decoded option. Names are byte-exact and valid UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientOption<'a> {
    /// Begin transmission on this export, the old way.
    ExportName(&'a str),
    /// End the handshake.
    Abort,
    /// List the exports.
    List,
    /// Tell about an export.
    Info(&'a str, InfoRequests),
    /// Tell about an export and begin transmission.
    Go(&'a str, InfoRequests),
    /// Use structured replies.
    StructuredReply,
    /// List the metadata contexts of an export.
    ListMeta(&'a str, MetaQuery),
    /// Select metadata contexts of an export.
    SetMeta(&'a str, MetaQuery),
    /// Something else.
    Unknown(u32),
}

/// Why an option is refused, and what the client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionRefusal {
    /// The reply's type.
    pub kind: RefusalKind,
    /// A sentence for a person.
    pub text: &'static str,
}

/// The error replies to options that this server uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RefusalKind {
    /// Not known here.
    Unsupported = (1 << 31) | 1,
    /// Known, and not allowed now.
    Policy = (1 << 31) | 2,
    /// Known and malformed.
    Invalid = (1 << 31) | 3,
    /// No such export.
    Unknown = (1 << 31) | 6,
    /// The server is going away.
    Shutdown = (1 << 31) | 7,
    /// Longer than the server's limits.
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
/// When the data is malformed for its option. An option that is not known is no error here.
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
    const SHORT: OptionRefusal = invalid("the option's data is shorter than it says");
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
        return Err(invalid("the option's data is longer than it says"));
    }
    Ok((name, wants))
}

fn meta(data: &[u8]) -> Result<(&str, MetaQuery), OptionRefusal> {
    const SHORT: OptionRefusal = invalid("the option's data is shorter than it says");
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
        none: count == 0,
        base_allocation: false,
        base_any: false,
    };
    for _ in 0..count {
        let text = reader.counted().ok_or(SHORT)?;
        if text.len() > STRING_BYTES_MAX {
            return Err(invalid("a metadata query is at most 4096 bytes long"));
        }
        query.base_allocation |= text == BASE_ALLOCATION.as_bytes();
        query.base_any |= text == b"base:";
    }
    if !reader.is_empty() {
        return Err(invalid("the option's data is longer than it says"));
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

/// What a client may know about an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Its name, at most [`STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// A sentence about it.
    pub description: String,
    /// Its size in bytes, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// What offsets and lengths must be multiples of, in bytes: a power of two from
    /// [`BLOCK_BYTES_MIN`](super::BLOCK_BYTES_MIN) to
    /// [`BLOCK_BYTES_MIN_MAX`](super::BLOCK_BYTES_MIN_MAX).
    pub block_bytes: u32,
    /// Its [`super::transmission_flags`], without those that depend on what was negotiated.
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

/// The string, cut at a character boundary to what the protocol allows.
fn string(text: &str) -> &[u8] {
    let mut end = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

/// Appends: done.
pub fn ack(out: &mut Vec<u8>, option: u32) {
    reply(out, option, REP_ACK, &[]);
}

/// Appends: refused, and why.
pub fn refuse(out: &mut Vec<u8>, option: u32, kind: RefusalKind, text: &str) {
    reply(out, option, kind as u32, &[string(text)]);
}

/// Appends one entry of the list of exports.
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

/// Appends what there is to say about an export; `flags` are the final transmission flags.
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
    // Told even to those that did not ask: some clients respect it all the same.
    info(
        INFO_BLOCK_SIZE,
        [
            &export.block_bytes.to_be_bytes(),
            &BLOCK_BYTES_PREFERRED.max(export.block_bytes).to_be_bytes(),
            &PAYLOAD_BYTES_MAX.to_be_bytes(),
        ],
    );
}

/// Appends one metadata context.
pub fn meta_context(out: &mut Vec<u8>, option: u32, id: u32) {
    reply(
        out,
        option,
        REP_META_CONTEXT,
        &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()],
    );
}

/// Appends the answer to `NBD_OPT_EXPORT_NAME`.
pub fn export_name(out: &mut Vec<u8>, size_bytes: u64, flags: u16, no_zeroes: bool) {
    out.extend_from_slice(&size_bytes.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    if !no_zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
    }
}

#[cfg(test)]
mod tests;
