use super::super::LATM;
use super::*;
use crate::rtp::packet::Header;

fn described(parameters: &str) -> Option<Config> {
    Config::of(&TrackDescription {
        control: None,
        encoding: LATM.to_owned(),
        clock_rate: 44_100,
        payload_type: Some(96),
        channels: 2,
        parameters: parameters.to_owned(),
        size: None,
    })
}

fn layout(config: &Config) -> ElementLayout {
    match config.layout {
        Layout::Elements(layout) => layout,
        Layout::AuHeaders(_) => panic!("{config:?}"),
    }
}

#[test]
fn descriptions_have_the_element_layout_and_decoder_config() {
    // The first is of ffmpeg, the next two of GStreamer, which end with the decoder configuration.
    for (config_text, specific, frames, other_bits) in [
        ("400024203fc0", &[0x12, 0x10][..], 1, 0),
        ("40002420", &[0x12, 0x10], 1, 0),
        ("40002420adca00", &[0x12, 0x10], 1, 0),
        ("7f0024203fc0", &[0x12, 0x10], 64, 0),
        // 8 other bits; 520 of them, and a CRC.
        ("400024203fe080", &[0x12, 0x10], 1, 8),
        ("400024203ff02047fc", &[0x12, 0x10], 1, 520),
        // SBR on 24 kHz.
        ("40005623101fe0", &[0x2b, 0x11, 0x88, 0x00], 1, 0),
        // A stream that depends on a core coder (14 bits of delay), and an error-resilient one.
        ("40002426aaa0ff00", &[0x12, 0x13, 0x55, 0x50], 1, 0),
        ("4001142200ff00", &[0x8a, 0x11, 0x00], 1, 0),
    ] {
        let config = described(&format!("cpresent=0;config={config_text}")).unwrap();
        assert_eq!(config.specific, specific, "{config_text}");
        let found = layout(&config);
        assert_eq!(
            (found.frames, found.other_bits),
            (frames, other_bits),
            "{config_text}"
        );
        assert!(!found.is_in_band);
    }
    // Version 1, separate framing, two programs, two layers, unknown frame lengths, listed channels, object
    // type 22, `epConfig` 2, endless `otherDataBits`, or truncated.
    for config in [
        "c00024203fc0",
        "000024203fc0",
        "401024203fc0",
        "400224203fc0",
        "400024207fc0",
        "400024003fc0",
        "400164203fc0",
        "4001142210ff00",
        "400024203fffffffffffffffff",
        "4000242",
        "40",
    ] {
        assert_eq!(described(&format!("config={config}")), None, "{config}");
    }
}

#[test]
fn cpresent_says_where_the_configuration_is() {
    for (parameters, is_in_band) in [
        ("cpresent=0;config=40002420", false),
        ("config=40002420", false),
        ("cpresent=0", false),
        ("cpresent=1;config=40002420", true),
        ("cpresent=1", true),
        ("profile-level-id=1", true),
        ("", true),
    ] {
        let config = described(parameters).unwrap();
        assert_eq!(config.specific, [0x12, 0x10], "{parameters}");
        assert_eq!(layout(&config).is_in_band, is_in_band, "{parameters}");
        assert_eq!(Aac::new(config).has_begun(), !is_in_band, "{parameters}");
    }
}

/// The frames that a packet completes, with their timestamps.
fn take(aac: &mut Aac, timestamp: u32, flags: &str, payload: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let marker = u8::from(flags.contains('m')) << 7;
    let mut header = [0x80, 96 | marker, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    header[4..8].copy_from_slice(&timestamp.to_be_bytes());
    let packet = Packet {
        header: Header::parse(&header).unwrap(),
        payload,
        media_ns: u64::from(timestamp),
        is_after_loss: flags.contains('l'),
    };
    let mut out = Vec::new();
    aac.push(&packet, 44_100, &mut out);
    out.into_iter().map(|of| (of.timestamp, of.data)).collect()
}

fn aac(config: &str) -> Aac {
    Aac::new(described(&format!("cpresent=0;config={config}")).unwrap())
}

#[test]
fn frames_are_read_from_elements() {
    let mut one = aac("400024203fc0");
    assert_eq!(take(&mut one, 0, "m", &[2, 7, 8]), [(0, vec![7, 8])]);
    // Lengths from 255 on take more bytes, also if the last of them is 0.
    for length in [254, 255, 256, 510, 700_usize] {
        let mut element = vec![255; length / 255];
        element.push((length % 255) as u8);
        element.extend(vec![9; length]);
        let found = take(&mut one, 1_024, "m", &element);
        assert_eq!(found, [(1_024, vec![9; length])], "{length}");
        // In three packets.
        let (first, rest) = element.split_at(1);
        let (second, third) = rest.split_at(100);
        assert_eq!(take(&mut one, 2_048, "", first), []);
        assert_eq!(take(&mut one, 2_048, "", second), []);
        let found = take(&mut one, 2_048, "m", third);
        assert_eq!(found, [(2_048, vec![9; length])], "{length}");
    }
    // Without a marker, and with a byte after the element.
    assert_eq!(take(&mut one, 3_072, "", &[1, 7]), [(3_072, vec![7])]);
    assert_eq!(take(&mut one, 4_096, "m", &[1, 7, 0]), [(4_096, vec![7])]);
    assert_eq!(one.left_out, 0);
    // Two frames and other bits.
    let mut two = aac("410024203fe080");
    let found = take(&mut two, 9, "m", &[2, 7, 8, 1, 6, 0xff]);
    assert_eq!(found, [(9, vec![7, 8]), (1_033, vec![6])]);
    // An empty frame is left out, and an ADTS header is removed.
    let framed = [&one.config.adts(2)[..], &[5, 6]].concat();
    let element = [&[0, 9][..], &framed, &[0xff]].concat();
    let found = take(&mut two, 2_057, "m", &element);
    assert_eq!((found, two.left_out), (vec![(3_081, vec![5, 6])], 1));
}

#[test]
fn lost_packets_cost_only_their_elements() {
    let mut of = aac("400024203fc0");
    let whole = |of: &mut Aac, timestamp, flags| {
        let found = take(of, timestamp, flags, &[2, 7, 8]);
        assert_eq!(found, [(timestamp, vec![7, 8])], "{flags}");
    };
    // The first packet may be the end of an element.
    assert_eq!(take(&mut of, 0, "m", &[1, 2, 3]), []);
    whole(&mut of, 1, "m");
    // The second of three parts is lost, then the third, then the first.
    assert_eq!(take(&mut of, 2, "", &[6, 1, 2]), []);
    assert_eq!(take(&mut of, 2, "ml", &[5, 6]), []);
    whole(&mut of, 3, "m");
    assert_eq!(take(&mut of, 4, "", &[6, 1, 2]), []);
    whole(&mut of, 5, "ml");
    assert_eq!(take(&mut of, 6, "l", &[9, 4]), []);
    assert_eq!(take(&mut of, 6, "m", &[5, 6]), []);
    whole(&mut of, 7, "m");
    assert_eq!(take(&mut of, 8, "ml", &[1, 2, 3]), []);
    assert_eq!(of.left_out, 6);
    // An element whose end never comes, and one that does not have its length.
    assert_eq!(take(&mut of, 9, "", &[6, 1, 2]), []);
    whole(&mut of, 10, "m");
    assert_eq!(take(&mut of, 11, "m", &[6, 1, 2]), []);
    whole(&mut of, 12, "m");
    assert_eq!(of.left_out, 8);
    // An element beyond the size limit.
    let long = vec![255; FRAME_BYTES_MAX];
    assert_eq!(take(&mut of, 13, "", &long), []);
    assert_eq!(take(&mut of, 13, "", &long[..1]), []);
    assert_eq!(of.left_out, 9);
    assert_eq!(take(&mut of, 13, "m", &[]), []);
    whole(&mut of, 14, "m");
}

/// The first bit says if the previous layout applies or a `StreamMuxConfig` follows, so all other fields are
/// not aligned to bytes.
#[test]
fn elements_may_have_their_own_configuration() {
    let mut of = Aac::new(described("cpresent=1").unwrap());
    let same = [0x81, 0x83, 0x84, 0x04, 0x80];
    assert_eq!(take(&mut of, 0, "m", &same), [(0, vec![7, 8, 9])]);
    assert!(!of.has_begun());
    let with_config = [0x20, 0x00, 0x12, 0x10, 0x1f, 0xe0, 0x18, 0x38, 0x40, 0x48];
    let found = take(&mut of, 1_024, "m", &with_config);
    assert_eq!(found, [(1_024, vec![7, 8, 9])]);
    assert!(of.has_begun());
    // In two parts, and then mono at 48 kHz.
    assert_eq!(take(&mut of, 2_048, "", &with_config[..4]), []);
    let found = take(&mut of, 2_048, "m", &with_config[4..]);
    assert_eq!(found, [(2_048, vec![7, 8, 9])]);
    let mono = [0x20, 0x00, 0x11, 0x88, 0x1f, 0xe0, 0x18, 0x38, 0x40, 0x48];
    assert_eq!(take(&mut of, 3_072, "m", &mono).len(), 1);
    assert_eq!(of.config.specific, [0x11, 0x88]);
    assert_eq!(take(&mut of, 4_096, "m", &same).len(), 1);
    // From here on, two frames in an element.
    let two = [
        0x20, 0x80, 0x11, 0x88, 0x1f, 0xe0, 0x10, 0x38, 0x40, 0x08, 0x30,
    ];
    let found = take(&mut of, 5_120, "m", &two);
    assert_eq!(found, [(5_120, vec![7, 8]), (6_060, vec![6])]);
    let found = take(&mut of, 7_168, "m", &[0x80, 0x82, 0x80, 0x83, 0x00]);
    assert_eq!(found, [(7_168, vec![5]), (8_108, vec![6])]);
    // Version 1 is not supported.
    let other = [0x60, 0x00, 0x11, 0x88, 0x1f, 0xe0, 0x18, 0x38, 0x40, 0x48];
    assert_eq!(
        (take(&mut of, 9_216, "m", &other), of.left_out),
        (vec![], 1)
    );
}
