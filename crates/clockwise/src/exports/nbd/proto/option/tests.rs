//! The bytes of options and their replies.

use super::*;

fn counted(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text);
    bytes
}

#[test]
fn greeting_has_the_documented_layout() {
    assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn client_flags_that_were_not_offered_end_the_connection() {
    assert_eq!(
        ClientFlags::decode([0, 0, 0, 3]),
        Ok(ClientFlags {
            is_fixed_newstyle: true,
            padding: Padding::None
        })
    );
    assert_eq!(
        ClientFlags::decode([0, 0, 0, 4]),
        Err(ProtocolError::ClientFlags(4))
    );
}

#[test]
fn go_option_is_decoded_with_its_information_requests() {
    let mut data = counted("camera-1".as_bytes());
    data.extend_from_slice(&[0, 3, 0, 3, 0, 1, 0x12, 0x34]);
    let wants = InfoRequests {
        name: true,
        description: false,
        block_size: true,
    };
    assert_eq!(
        decode(code::GO, &data),
        Ok(ClientOption::Go("camera-1", wants))
    );
    for cut in 0..data.len() {
        assert!(decode(code::GO, &data[..cut]).is_err(), "cut at {cut}");
    }
    data.push(0);
    assert!(decode(code::GO, &data).is_err());
}

#[test]
fn name_longer_than_the_option_or_the_limit_is_refused() {
    let data = [0xff, 0xff, 0xff, 0xff, 0, 0];
    assert_eq!(
        decode(code::INFO, &data).unwrap_err().kind,
        RefusalKind::Invalid
    );
    let long = vec![b'x'; STRING_BYTES_MAX + 1];
    assert!(decode(code::EXPORT_NAME, &long).is_err());
    assert!(decode(code::EXPORT_NAME, &long[1..]).is_ok());
    assert!(decode(code::EXPORT_NAME, &[0xff, 0xfe]).is_err());
}

#[test]
fn meta_queries_of_other_namespaces_are_ignored() {
    let mut data = counted(b"v");
    data.extend_from_slice(&3u32.to_be_bytes());
    for query in ["qemu:dirty-bitmap:x", "base:", "base:unheard-of"] {
        data.extend_from_slice(&counted(query.as_bytes()));
    }
    let query = MetaQuery {
        is_empty: false,
        has_base_allocation: false,
        has_base_wildcard: true,
    };
    assert_eq!(
        decode(code::LIST_META_CONTEXT, &data),
        Ok(ClientOption::ListMeta("v", query))
    );
    for cut in 0..data.len() {
        assert!(
            decode(code::SET_META_CONTEXT, &data[..cut]).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn too_many_meta_queries_are_refused_before_they_are_decoded() {
    let mut data = counted(b"");
    data.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        decode(code::SET_META_CONTEXT, &data).unwrap_err().kind,
        RefusalKind::TooBig
    );
}

#[test]
fn replies_have_the_documented_layout() {
    let mut out = Vec::new();
    refuse(&mut out, 99, RefusalKind::Unsupported, "no");
    let mut expected = vec![0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9];
    expected.extend_from_slice(&[0, 0, 0, 99, 0x80, 0, 0, 1, 0, 0, 0, 2, b'n', b'o']);
    assert_eq!(out, expected);

    out.clear();
    export_name(&mut out, 512, 0x0101, Padding::Zeroes);
    assert_eq!(out.len(), 134);
    assert_eq!(out[..10], [0, 0, 0, 0, 0, 0, 2, 0, 1, 1]);
}

#[test]
fn text_is_cut_between_characters() {
    let text = "é".repeat(STRING_BYTES_MAX);
    assert_eq!(string(&text).len(), STRING_BYTES_MAX);
    let text = format!("x{text}");
    assert_eq!(string(&text).len(), STRING_BYTES_MAX - 1);
}
