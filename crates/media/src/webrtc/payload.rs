//! Payloads that fit into a datagram.

/// The longest payload: with the headers of IPv6 and UDP (48), RTP (12), its extension (up to 20) and the proof of SRTP
/// (16) it fits into a frame of Ethernet (1,500 bytes).
pub(super) const PAYLOAD_BYTES_MAX: usize = 1_400;

/// The longest payload that is sent at all. The network may split it.
const CARRIED_BYTES_MAX: usize = 1_900;

/// NAL unit types of packets (RFC 6184, section 5.2).
const AGGREGATE: u8 = 24;
const FRAGMENT: u8 = 28;

/// The types of a slice of an IDR picture, and of a sequence parameter set.
const IDR: u8 = 5;
const SPS: u8 = 7;

const START: u8 = 0x80;
const END: u8 = 0x40;

/// Calls `give` with the payloads that carry a payload of H.264, in order (RFC 6184).
pub(super) fn split_avc(payload: &[u8], give: &mut impl FnMut(Vec<u8>)) {
    if crate::rtp::packet::frames::has_start_code(payload) {
        crate::rtp::packet::frames::apart(payload).for_each(|unit| split_unit(unit, give));
        return;
    }
    if payload.len() <= PAYLOAD_BYTES_MAX {
        give(payload.to_vec());
        return;
    }
    match payload {
        [first, rest @ ..] if first & 0x1f == AGGREGATE => {
            aggregated(rest).for_each(|unit| split_unit(unit, give));
        }
        [first, second, body @ ..] if first & 0x1f == FRAGMENT => {
            let (is_first, is_last) = (second & START != 0, second & END != 0);
            fragments(
                first & 0xe0 | second & 0x1f,
                body,
                (is_first, is_last),
                give,
            );
        }
        unit => split_unit(unit, give),
    }
}

/// A unit as one payload, or in fragments.
fn split_unit(unit: &[u8], give: &mut impl FnMut(Vec<u8>)) {
    match unit {
        [] => {}
        unit if unit.len() <= PAYLOAD_BYTES_MAX => give(unit.to_vec()),
        [head, body @ ..] => fragments(*head, body, (true, true), give),
    }
}

/// Fragments (FU-A, RFC 6184, section 5.8) of the body of a unit with this header. The flags say whether the body
/// begins and ends with the unit's.
fn fragments(
    head: u8,
    body: &[u8],
    (is_first, is_last): (bool, bool),
    give: &mut impl FnMut(Vec<u8>),
) {
    let pieces = body.len().div_ceil(PAYLOAD_BYTES_MAX - 2).max(1);
    let length = body.len().div_ceil(pieces).max(1);
    for (number, piece) in body.chunks(length).enumerate() {
        let mut flags = head & 0x1f;
        if is_first && number == 0 {
            flags |= START;
        }
        if is_last && (number + 1) * length >= body.len() {
            flags |= END;
        }
        let mut out = Vec::with_capacity(piece.len() + 2);
        out.extend_from_slice(&[head & 0xe0 | FRAGMENT, flags]);
        out.extend_from_slice(piece);
        give(out);
    }
}

/// The units of an aggregation packet; the last one may be cut off.
fn aggregated(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (unit, behind) = behind.split_at(length);
        rest = behind;
        Some(unit)
    })
}

/// True if a payload of H.264 has a sequence parameter set.
pub(super) fn has_sps(payload: &[u8]) -> bool {
    let is_sps = |unit: &[u8]| unit.first().is_some_and(|first| first & 0x1f == SPS);
    match payload {
        [first, rest @ ..] if first & 0x1f == AGGREGATE => aggregated(rest).any(is_sps),
        unit => is_sps(unit),
    }
}

/// True if a payload of H.264 begins with a slice of an IDR picture.
pub(super) fn begins_with_idr(payload: &[u8]) -> bool {
    match payload {
        [first, second, ..] if first & 0x1f == FRAGMENT => {
            second & START != 0 && second & 0x1f == IDR
        }
        [first, ..] => first & 0x1f == IDR,
        [] => false,
    }
}

/// The payload as it is, if it can be carried.
pub(super) fn whole(payload: &[u8], give: &mut impl FnMut(Vec<u8>)) {
    if payload.len() <= CARRIED_BYTES_MAX {
        give(payload.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The units that payloads carry, put together again.
    fn units(payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut units: Vec<Vec<u8>> = Vec::new();
        let mut is_open = false;
        for payload in payloads {
            assert!(payload.len() <= PAYLOAD_BYTES_MAX);
            match &payload[..] {
                [first, rest @ ..] if first & 0x1f == AGGREGATE => {
                    units.extend(aggregated(rest).map(<[u8]>::to_vec));
                }
                [first, flags, body @ ..] if first & 0x1f == FRAGMENT => {
                    assert_eq!(flags & START == 0, is_open);
                    if flags & START != 0 {
                        units.push(vec![first & 0xe0 | flags & 0x1f]);
                    }
                    units.last_mut().unwrap().extend_from_slice(body);
                    is_open = flags & END == 0;
                }
                unit => units.push(unit.to_vec()),
            }
        }
        assert!(!is_open);
        units
    }

    fn split(payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for payload in payloads {
            split_avc(payload, &mut |piece| out.push(piece));
        }
        out
    }

    fn unit(length: usize) -> Vec<u8> {
        let body = (0..length).map(|at| (at % 251 + 1) as u8);
        std::iter::once(0x65).chain(body).collect()
    }

    proptest! {
        /// Units of any length, alone, aggregated, or in fragments of any length, arrive as they are.
        #[test]
        fn split_payloads_carry_the_same_units(lengths in prop::collection::vec(1_usize..9_000, 1..4), fragment in 1_usize..5_000) {
            let sent: Vec<_> = lengths.iter().map(|length| unit(*length)).collect();
            prop_assert_eq!(&units(&split(&sent)), &sent);
            let mut aggregate = vec![0x78];
            for unit in &sent {
                aggregate.extend_from_slice(&(unit.len() as u16).to_be_bytes());
                aggregate.extend_from_slice(unit);
            }
            prop_assert_eq!(&units(&split(&[aggregate])), &sent);
            let last = sent[0].len().saturating_sub(2) / fragment;
            let cut: Vec<Vec<u8>> = sent[0][1..].chunks(fragment).enumerate().map(|(number, piece)| {
                let flags = 5 | if number == 0 { START } else { 0 } | if number == last { END } else { 0 };
                [&[0x7c, flags], piece].concat()
            }).collect();
            prop_assert_eq!(&units(&split(&cut)), &sent[..1]);
        }

        #[test]
        fn no_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
            split_avc(&bytes, &mut |piece| assert!(piece.len() <= PAYLOAD_BYTES_MAX));
            begins_with_idr(&bytes);
            has_sps(&bytes);
        }
    }

    #[test]
    fn start_of_an_idr_picture_is_found() {
        assert!(begins_with_idr(&[0x65, 1]));
        assert!(begins_with_idr(&[0x7c, 0x85, 1]));
        for other in [
            &[0x7c, 0x05, 1][..],
            &[0x67, 1],
            &[0x78, 0, 1, 0x65],
            &[0x61],
            &[],
        ] {
            assert!(!begins_with_idr(other), "{other:?}");
        }
    }
}
