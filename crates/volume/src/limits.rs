//! Limits of the format, each with its reason, and the relations between them.

use sched::units::Bytes;

/// The unit of metadata: every structure starts on a multiple of it and fills whole ones, so that
/// no write of metadata makes a drive rewrite a physical sector that holds older metadata.
pub const BLOCK_BYTES: u64 = 4096;

/// The smallest extent. Smaller ones could not hold a few log records.
pub const EXTENT_BYTES_MIN: Bytes = Bytes::from_kib(64);

/// The largest extent: a second or so of transfer on a disk of today, the longest copy that a move
/// should take as one unit.
pub const EXTENT_BYTES_MAX: Bytes = Bytes::from_mib(1024);

/// The most chunks in an extent: what is written in an extent is at most 64 bytes of bits.
pub const CHUNKS_PER_EXTENT_MAX: u64 = 512;

/// The smallest chunk: the block of file systems and of physical sectors.
pub const CHUNK_BYTES_MIN: Bytes = Bytes::from_kib(4);

/// The longest volume name, in bytes; what file systems allow.
pub const NAME_BYTES_MAX: usize = 255;

/// The most disks in a pool: their identities fill the superblock's one block.
pub const DISKS_MAX: usize = 128;

/// The most volumes in a pool: what a table copy has room for.
pub const VOLUMES_MAX: usize = 8192;

/// The most extents in a volume: 4 TiB of 1 MiB, 128 TiB of 32 MiB.
pub const VOLUME_EXTENTS_MAX: u32 = 1 << 22;

/// Marks of changed extents are allocated so many words at a time, a bit for each extent: what a
/// volume of 4 GiB needs if its extents are of 1 MiB, and an eighth of a page.
pub const MARK_WORDS: usize = 64;

/// The most extents on one disk: addresses are 32 bits wide and one value means "none".
pub const DISK_EXTENTS_MAX: u64 = u32::MAX as u64 - 1;

/// Space before the first extent of every disk: superblock and, on the first disk, the tables.
pub const HEADER_BYTES: u64 = 1 << 20;

/// The longest log record, in blocks: a quarter of the smallest extent.
pub const RECORD_BLOCKS_MAX: u64 = 4;

/// End of generations, sequence numbers and volume numbers: more than can be counted to, so that adding to
/// one read from a disk never overflows.
pub const COUNTER_MAX: u64 = 1 << 62;

/// Blocks of log after which a checkpoint is due: 4 MiB, rolled forward in well under a second.
pub const LOG_BLOCKS_DUE: u64 = 1024;

const _: () = assert!(EXTENT_BYTES_MIN.0.is_power_of_two() && EXTENT_BYTES_MAX.0.is_power_of_two());
const _: () = assert!(EXTENT_BYTES_MIN.0 >= 4 * RECORD_BLOCKS_MAX * BLOCK_BYTES);
const _: () = assert!(CHUNK_BYTES_MIN.0 >= BLOCK_BYTES && HEADER_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(CHUNKS_PER_EXTENT_MAX <= 512, "a bitmap is eight words");
