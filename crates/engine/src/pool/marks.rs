//! Recognising the content of a disk or volume by signatures of file systems, partition tables and volume
//! managers.

/// Length of the beginning that contains all known signatures.
pub const MARKED_BYTES: usize = 72 << 10;

/// A signature: its offset, its bytes, and the name of the content.
type Mark = (usize, &'static [u8], &'static str);

/// Signatures that are long enough to be unambiguous.
const MARKS: [Mark; 21] = [
    (0, b"XFSB", "a file system (XFS)"),
    (0x1_0040, b"_BHRfS_M", "a file system (Btrfs)"),
    (0x400, b"\x10\x20\xf5\xf2", "a file system (F2FS)"),
    (3, b"NTFS    ", "a file system (NTFS)"),
    (3, b"EXFAT   ", "a file system (exFAT)"),
    (82, b"FAT32   ", "a file system (FAT)"),
    (54, b"FAT16   ", "a file system (FAT)"),
    (54, b"FAT12   ", "a file system (FAT)"),
    (0, b"hsqs", "a file system (SquashFS)"),
    (0x8001, b"CD001", "a file system (ISO 9660)"),
    (0x1_0034, b"ReIsEr", "a file system (ReiserFS)"),
    (0x8000, b"JFS1", "a file system (JFS)"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (4_086, b"SWAPSPACE2", "a swap space"),
    (0x218, b"LVM2 001", "a physical volume of LVM"),
    (0x18, b"LVM2 001", "a physical volume of LVM"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4_096, b"EFI PART", "a partition table (GPT)"),
    (0, b"QFI\xfb", "the image of a disk (qcow2)"),
];

/// The kind of content, in words; `None` if it is unknown. Raw data of a database or a virtual machine may have no
/// signature.
#[must_use]
pub fn mark_of(beginning: &[u8]) -> Option<&'static str> {
    let has = |(at, bytes, _): &&Mark| beginning.get(*at..*at + bytes.len()) == Some(*bytes);
    if let Some((_, _, of)) = MARKS.iter().find(has) {
        return Some(of);
    }
    if is_ext(beginning) {
        return Some("a file system (ext2, ext3 or ext4)");
    }
    has_partitions(beginning).then_some("a partition table (MBR)")
}

/// The signature of ext2 and its successors is short, so block size and revision have to be valid as well.
fn is_ext(beginning: &[u8]) -> bool {
    let Some(superblock) = beginning.get(0x400..0x450) else {
        return false;
    };
    let number = |at: usize| {
        let bytes = superblock[at..at + 4].first_chunk().copied();
        bytes.map_or(u32::MAX, u32::from_le_bytes)
    };
    let (block_shift, revision) = (number(0x18), number(0x4c));
    superblock[0x38..0x3a] == [0x53, 0xef] && block_shift <= 6 && revision <= 1
}

/// The signature of a partition table is short, so all four entries have to be valid and one has to exist.
fn has_partitions(beginning: &[u8]) -> bool {
    let Some(table) = beginning.get(446..512) else {
        return false;
    };
    let mut partitions = table[..64].chunks(16);
    let is_possible = partitions.clone().all(|of| matches!(of[0], 0 | 0x80));
    table[64..] == [0x55, 0xaa] && is_possible && partitions.any(|of| of[4] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(marks: &[(usize, &[u8])]) -> Vec<u8> {
        let mut beginning = vec![0; MARKED_BYTES];
        for (at, bytes) in marks {
            beginning[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        beginning
    }

    #[test]
    fn each_signature_is_recognised_only_as_a_whole() {
        for (at, bytes, of) in MARKS {
            let whole = marked(&[(at, bytes)]);
            assert_eq!(mark_of(&whole), Some(of));
            assert_eq!(mark_of(&whole[..at + bytes.len()]), Some(of));
            assert_eq!(mark_of(&whole[..at + bytes.len() - 1]), None);
            assert_eq!(mark_of(&marked(&[(at, &bytes[1..])])), None);
        }
    }

    #[test]
    fn short_signatures_need_valid_fields() {
        let ext = [(0x438, &[0x53, 0xef][..]), (0x418, &[2]), (0x44c, &[1])];
        let is_ext = |of: &[(usize, &[u8])]| mark_of(&marked(of)).is_some();
        assert!(is_ext(&ext));
        assert!(!is_ext(&[ext[0], (0x418, &[7])]));
        assert!(!is_ext(&[ext[0], (0x44c, &[2])]));
        let table = [(510, &[0x55, 0xaa][..]), (450, &[0x83])];
        assert!(is_ext(&table));
        assert!(!is_ext(&table[..1]));
        assert!(!is_ext(&[table[0], table[1], (446, &[1])]));
        assert_eq!(mark_of(&[]), None);
    }
}
