use super::*;
use crate::rtp::packet::Header;

/// A track with this clock rate and two channels.
fn described(parameters: &str, clock_rate: u32) -> TrackDescription {
    TrackDescription {
        control: None,
        encoding: "MPEG4-GENERIC".to_owned(),
        clock_rate,
        payload_type: Some(97),
        channels: 2,
        parameters: parameters.to_owned(),
        size: None,
    }
}

fn config(parameters: &str) -> Option<Config> {
    Config::of(&described(parameters, 48_000))
}

const PARAMETERS: &str =
    "profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3; config=1190";

fn units(aac: &mut Aac, payload: &[u8], is_after_loss: bool) -> Vec<Unit> {
    let header = Header::parse(&[0x80, 97, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]).unwrap();
    let mut out = Vec::new();
    let packet = Packet {
        header,
        payload,
        media_ns: 5,
        is_after_loss,
    };
    aac.push(&packet, 48_000, &mut out);
    out
}

#[test]
fn frames_are_read_from_packets() {
    let config = config(PARAMETERS).unwrap();
    assert_eq!(
        (config.object_type, config.frequency_index, config.channels),
        (2, 3, 2)
    );
    // The ADTS header of a stereo frame of 9 bytes at 48 kHz.
    assert_eq!(config.adts(9), [0xff, 0xf1, 0x4c, 0x80, 0x02, 0x1f, 0xfc]);
    let mut aac = Aac::new(config);
    // Two frames, of 2 bytes and of 1.
    let two = [0, 32, 0, 2 << 3, 0, 1 << 3, 7, 8, 9];
    let found = units(&mut aac, &two, false);
    let expected = [(vec![7, 8], 9, 5), (vec![9], 1_033, 21_333_338)];
    let found: Vec<_> = found
        .into_iter()
        .map(|of| (of.data, of.timestamp, of.media_ns))
        .collect();
    assert_eq!(found, expected);
    // A frame of four bytes in two packets.
    assert!(units(&mut aac, &[0, 16, 0, 4 << 3, 1, 2], false).is_empty());
    let found = units(&mut aac, &[0, 16, 0, 4 << 3, 3, 4], false);
    assert_eq!(found[0].data, [1, 2, 3, 4]);
    assert_eq!(aac.left_out, 0);
    // A frame whose second part is missing, and invalid packets.
    units(&mut aac, &[0, 16, 0, 4 << 3, 1, 2], false);
    assert!(units(&mut aac, &[0, 16, 0, 4 << 3, 3, 4], true).is_empty());
    for nonsense in [
        &[][..],
        &[0],
        &[0, 0, 1],
        &[0, 99, 0],
        &[0, 32, 0, 8, 0, 99, 1],
    ] {
        units(&mut aac, nonsense, false);
    }
    assert!(aac.left_out >= 6, "{}", aac.left_out);
}

#[test]
fn other_encodings_are_refused() {
    for parameters in [
        "sizelength=99;config=1190",
        "mode=CELP-vbr;sizelength=13",
        "mode=CELP-vbr;sizelength=13;config=40a0",
        "sizelength=0;config=1190",
    ] {
        assert_eq!(config(parameters), None, "{parameters}");
    }
    assert_eq!(Config::of(&described("", 90_000)), None);
}

#[test]
fn missing_parameters_have_the_defaults_of_cameras() {
    let whole = config(PARAMETERS).unwrap();
    for parameters in [
        "",
        "config=1190",
        "config=\"1190\"",
        "mode=AAC-hbr;config=119",
        "mode=AAC-hbr;sizeLength=13;indexLength=3;indexDeltaLength=3",
        "mode=AAC-hbr;config=zz",
        "config = 1190 ; mode=AAC-hbr",
    ] {
        assert_eq!(config(parameters).as_ref(), Some(&whole), "{parameters}");
    }
    let longer = config("config=119056e500").unwrap();
    assert_eq!((longer.object_type, longer.specific.len()), (2, 5));
    let low = config("mode=AAC-lbr;config=1190").unwrap();
    let header = AuHeaderBits {
        size: 6,
        index: 2,
        index_delta: 2,
        ..AuHeaderBits::default()
    };
    assert_eq!(low.layout, Layout::AuHeaders(header));
    // SBR on 24 kHz: a frame is as long as 2,048 samples at 48 kHz.
    let with_sbr = config("config=2b098800").unwrap();
    assert_eq!((with_sbr.object_type, with_sbr.core_type), (5, 2));
    assert_eq!(with_sbr.ticks(1, 48_000), 2_048);
    assert_eq!(with_sbr.ticks(1, 24_000), 1_024);
    assert_eq!(with_sbr.adts(9)[2], 0x58);
    // Frames of 960 samples, and a frequency without an index.
    assert_eq!(config("config=1194").unwrap().ticks(3, 48_000), 2_880);
    let odd = config("config=17801388 10".replace(' ', "").as_str()).unwrap();
    assert_eq!((odd.frequency_index, odd.frequency), (15, 10_000));
    assert!(!odd.has_adts() && with_sbr.has_adts());
}

#[test]
fn optional_au_header_fields_are_skipped() {
    let parameters = "sizelength=8;indexlength=3;indexdeltalength=3;ctsdeltalength=4;dtsdeltalength=4;\
                randomaccessindication=1;streamstateindication=2;auxiliarydatasizelength=8;config=1190";
    let mut aac = Aac::new(config(parameters).unwrap());
    // AU header of 20 bits: 8 of size, 3 of index, 1 and 4 of CTS, 1 of DTS, 1 and 2 of flags. Auxiliary
    // section: 8 bits of size, 4 bits.
    let packet = [0, 20, 2, 0b0001_0101, 0b0100_0000, 4, 0xf0, 7, 8];
    assert_eq!(units(&mut aac, &packet, false)[0].data, [7, 8]);
    assert_eq!(aac.left_out, 0);
}

/// Some cameras leave ADTS headers before frames, and some send these instead of AU headers.
#[test]
fn adts_headers_are_removed() {
    let mut aac = Aac::new(config(PARAMETERS).unwrap());
    let framed = [&aac.config.adts(3)[..], &[0x21, 8, 9]].concat();
    let packet = [&[0, 16, 0, 10 << 3][..], &framed].concat();
    assert_eq!(units(&mut aac, &packet, false)[0].data, [0x21, 8, 9]);
    let found = units(&mut aac, &[&framed[..], &framed].concat(), false);
    let times: Vec<u32> = found.iter().map(|of| of.timestamp).collect();
    assert_eq!(
        (times, &*found[1].data),
        (vec![9, 1_033], &[0x21, 8, 9][..])
    );
    assert_eq!(aac.left_out, 0);
}
