//! Descriptions as cameras and encoders write them.

use super::*;

const TWO: &[u8] =
    b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    a=tool:libavformat\r\nm=video 0 RTP/AVP 96\r\nb=AS:800\r\na=rtpmap:96 H264/90000\r\n\
    a=fmtp:96 packetization-mode=1\r\na=control:streamid=0\r\nm=audio 0 RTP/AVP 97\r\nb=AS:128\r\n\
    a=rtpmap:97 MPEG4-GENERIC/44100/2\r\na=control:streamid=1\r\n";

/// As cameras of TP-Link, H3C and Sony write them. Origins and addresses are not used.
#[test]
fn invalid_origins_and_addresses_are_ignored() {
    for (session, media) in [
        (
            "o=- 14665860 31787219 1 IN IP4 10.0.0.94\r\ns=x\r\nc=IN IP4 0.0.0.0\r\nt=0 0",
            "",
        ),
        (
            "o=- 1001 1 IN\r\ns=VCP IPC Realtime stream\r\nc=IN\r\nt=0 0",
            "c=IN\r\n",
        ),
        ("o=- 1 1 IN IP4 10.0.0.1\r\ns=x\r\nc=\r\nt=0 0", ""),
        ("o=- 1 1 IN IP4 \r\ns=x\r\nt=", "c=IN IP4 \r\n"),
    ] {
        let text = format!(
            "v=0\r\n{session}\r\nm=video 0 RTP/AVP 96\r\n{media}b=AS:800\r\na=rtpmap:96 H264/90000\r\n\
             a=control:one\r\n"
        );
        let found = Description::parse(text.as_bytes()).unwrap();
        let [track] = found.tracks() else {
            panic!("{text}");
        };
        assert_eq!(
            (&*track.encoding, track.control.as_deref()),
            ("H264", Some("one"))
        );
        assert_eq!(found.rate(), Some(BytesPerSecond(110_000)), "{text}");
        // Blocks contain its text, and players get a description made from it.
        let again = Description::parse(found.text()).unwrap();
        assert_eq!(again.tracks(), found.tracks());
        assert!(Description::parse(&found.for_players(0, None)).is_ok());
    }
}

/// No version, invalid ports, rates and text, as cameras of Tuya and others write them.
#[test]
fn invalid_lines_of_a_description_are_repaired() {
    let media = "m=video 0 RTP/AVP 96\r\nb=AS:800\r\na=rtpmap:96 H264/90000\r\na=control:one\r\n";
    let texts = [
        media.as_bytes().to_vec(),
        format!("v=0\r\n{}", media.replace(" 0 ", " -1353744643 ")).into_bytes(),
        format!("v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nb=AS:\r\nt=0 0\r\n{media}").into_bytes(),
        [
            b"v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=\xe9\r\nt=0 0\r\n",
            media.as_bytes(),
        ]
        .concat(),
    ];
    for text in texts {
        let shown = String::from_utf8_lossy(&text);
        let found = Description::parse(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let track = &found.tracks()[0];
        assert_eq!(
            (&*track.encoding, track.control.as_deref()),
            ("H264", Some("one")),
            "{shown}"
        );
        assert_eq!(found.rate(), Some(BytesPerSecond(110_000)), "{shown}");
        let given = Description::parse(&found.for_players(0, None)).unwrap();
        assert_eq!(given.tracks().len(), 1);
    }
    assert!(Description::parse(b"nonsense").is_err());
    // The repaired text has to fit as well.
    let long = [media.as_bytes(), b"a=x:", &[0xe9; 6_000]].concat();
    let refused = Description::parse(&long);
    assert!(
        matches!(refused, Err(DescriptionError::Long(_))),
        "{refused:?}"
    );
}

/// Tracks that cannot be received are left out if another one can. Encrypted tracks are received by TLS only.
#[test]
fn camera_description_keeps_the_tracks_that_can_be_received() {
    let head = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\na=key-mgmt:mikey AQ==\r\n";
    let track = |proto: &str, name: &str| {
        format!(
            "m=video 0 {proto} 96\r\na=rtpmap:96 H264/90000\r\na=control:{name}\r\na=crypto:1 AES\r\n"
        )
    };
    let names = |of: &[(&str, &str)], is_secure: bool| {
        let tracks: String = of.iter().map(|(proto, name)| track(proto, name)).collect();
        let found = Description::of_camera((head.to_owned() + &tracks).as_bytes(), is_secure)?;
        let given = String::from_utf8(found.for_players(0, None)).unwrap();
        assert!(
            !given.contains("SAVP") && !given.contains("AVPF") && !given.contains("crypto"),
            "{given}"
        );
        assert!(!given.contains("key-mgmt"), "{given}");
        let names = found.tracks().iter().map(|of| of.control.clone().unwrap());
        Ok(names.collect::<Vec<_>>().concat())
    };
    let (plain, coded) = (("RTP/AVP", "a"), ("RTP/SAVP", "b"));
    let (feedback, other) = (("RTP/AVPF", "c"), ("MP2T/AVP", "d"));
    for (tracks, is_secure, had) in [
        (&[plain][..], false, "a"),
        (&[plain, coded], false, "a"),
        (&[plain, coded], true, "ab"),
        (&[coded], true, "b"),
        (&[other, feedback, plain], false, "ca"),
    ] {
        assert_eq!(names(tracks, is_secure), Ok(had.to_owned()), "{tracks:?}");
    }
    for tracks in [&[coded][..], &[other]] {
        let refused = names(tracks, false);
        assert!(
            matches!(refused, Err(DescriptionError::Protocol(0, _))),
            "{refused:?}"
        );
    }
}

/// Attributes of the sender and of its transport are not passed on to players.
#[test]
fn description_for_players_omits_the_sender_and_its_transport() {
    let text = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\na=source-filter: incl IN IP4 * 10.1.1.1\r\n\
                m=audio 0 RTP/AVP/TCP 4\r\na=rtcp:5001\r\na=inactive\r\na=ptime:30\r\n";
    let found = Description::parse(text.as_bytes()).unwrap();
    let track = &found.tracks()[0];
    assert_eq!((&*track.encoding, track.clock_rate), ("G723", 8_000));
    let given = String::from_utf8(found.for_players(0, None)).unwrap();
    assert!(
        given.contains("m=audio 0 RTP/AVP 4\r\n") && given.contains("ptime"),
        "{given}"
    );
    for of in ["source-filter", "a=rtcp", "inactive"] {
        assert!(!given.contains(of), "{given}");
    }
}

#[test]
fn announced_description_is_understood_and_rewritten_for_players() {
    let description = Description::parse(TWO).unwrap();
    let of = |payload_type, encoding: &str, clock_rate, channels, parameters: &str| Track {
        control: Some(format!("streamid={}", payload_type - 96)),
        encoding: encoding.to_owned(),
        clock_rate,
        payload_type: Some(payload_type),
        channels,
        parameters: parameters.to_owned(),
        size: None,
    };
    let expected = [
        of(96, "H264", 90_000, 1, "packetization-mode=1"),
        of(97, "MPEG4-GENERIC", 44_100, 2, ""),
    ];
    assert_eq!(description.tracks(), expected);
    // 928 kbit/s and a tenth.
    assert_eq!(description.rate(), Some(BytesPerSecond(127_600)));
    let given = description.for_players(2_000_000, Some(1_500_000_000));
    let again = Description::parse(&given).unwrap();
    let controls: Vec<_> = again.tracks().iter().map(|of| of.control.clone()).collect();
    assert_eq!(controls, [Some(control(0)), Some(control(1))]);
    let text = String::from_utf8(given).unwrap();
    assert!(text.contains("a=range:npt=0-1.500000000\r\n"), "{text}");
    let late = String::from_utf8(description.for_players(1_002_000_000, None)).unwrap();
    assert!(late.contains("a=range:npt=1.002000000-\r\n"), "{late}");
    assert!(
        text.contains("a=fmtp:96 packetization-mode=1\r\n"),
        "{text}"
    );
    assert!(
        !text.contains("127.0.0.1\r\nt=") && !text.contains("streamid"),
        "{text}"
    );
}

#[test]
fn missing_formats_and_rates_have_defaults() {
    let text = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\nm=audio 0 RTP/AVP 11\r\nm=video 0 RTP/AVP 99\r\n";
    let description = Description::parse(text.as_bytes()).unwrap();
    let rates: Vec<u32> = description
        .tracks()
        .iter()
        .map(|of| of.clock_rate)
        .collect();
    assert_eq!(rates, [44_100, 90_000]);
    assert_eq!(description.rate(), None);
    // The rate that is reserved is then in the recording.
    let description = description.needing(BytesPerSecond(1_100_000)).unwrap();
    assert_eq!(description.rate(), Some(BytesPerSecond(1_100_000)));
    assert_eq!(description.tracks().len(), 2);
    let again = description.needing(BytesPerSecond(5)).unwrap();
    assert_eq!(again.rate(), Some(BytesPerSecond(1_100_000)));
}

#[test]
fn unrecordable_description_is_refused_with_a_reason() {
    let head = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\n";
    let many = format!("{head}{}", "m=audio 0 RTP/AVP 0\r\n".repeat(TRACKS_MAX + 1));
    for (text, said) in [
        ("", "is not SDP"),
        ("garbage", "is not SDP"),
        (head, "0 tracks"),
        (many.as_str(), "17 tracks"),
        (&format!("{head}m=audio 0 RTP/SAVP 0\r\n"), "RTP/SAVP"),
        (&"x".repeat(TEXT_BYTES_MAX + 1), "16385 bytes"),
    ] {
        let error = Description::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// An NVR has AAC as payload type 104, and its parameters under 97 (gortsplib #658).
#[test]
fn description_of_the_only_format_applies_under_another_payload_type() {
    let head = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\n";
    let of = |media: &str| Description::parse(format!("{head}{media}").as_bytes()).unwrap();
    let found = of(
        "m=audio 0 RTP/AVP 104\r\na=rtpmap:104 mpeg4-generic/16000/1\r\na=fmtp:97 config=1408\r\n",
    );
    assert_eq!(found.tracks()[0].parameters, "config=1408");
    let given = String::from_utf8(found.for_players(0, None)).unwrap();
    assert!(given.contains("a=fmtp:104 config=1408\r\n"), "{given}");
    let found = of("m=video 0 RTP/AVP 96\r\na=rtpmap:97 H265/90000\r\na=fmtp:96 x=1\r\n");
    let track = &found.tracks()[0];
    assert_eq!((&*track.encoding, &*track.parameters), ("H265", "x=1"));
    // With several formats, or several descriptions, it is ambiguous.
    let found = of(
        "m=audio 0 RTP/AVP 104 105\r\na=rtpmap:104 mpeg4-generic/16000/1\r\na=fmtp:97 config=1408\r\n",
    );
    assert_eq!(found.tracks()[0].parameters, "");
    let found = of("m=audio 0 RTP/AVP 104\r\na=fmtp:97 a=1\r\na=fmtp:98 b=1\r\n");
    assert_eq!(found.tracks()[0].parameters, "");
}

#[test]
fn clock_rate_and_size_of_pictures_are_understood() {
    let head = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\n";
    for (media, encoding, size) in [
        ("m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264\r\n", "H264", None),
        (
            "m=video 0 RTP/AVP 26\r\na=x-dimensions:2592,1944\r\n",
            "JPEG",
            Some((2_592, 1_944)),
        ),
        (
            "m=video 0 RTP/AVP 26\r\na=framesize:26 2560-1920\r\n",
            "JPEG",
            Some((2_560, 1_920)),
        ),
        (
            "m=video 0 RTP/AVP 26\r\na=x-dimensions:0,7\r\n",
            "JPEG",
            None,
        ),
    ] {
        let found = Description::parse(format!("{head}{media}").as_bytes()).unwrap();
        let track = &found.tracks()[0];
        assert_eq!((&*track.encoding, track.clock_rate), (encoding, 90_000));
        assert_eq!(track.size, size, "{media}");
    }
}
