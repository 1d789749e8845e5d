//! Encodings that come back from files: AV1, MPEG-4 Visual, Motion JPEG and uncompressed sound.

use std::net::SocketAddr;

use testkit::rtsp::files::{clip, closed, closed_after, export, newest, sums};
use testkit::rtsp::http::{get, http};
use testkit::rtsp::peers::{SEEN, ffmpeg};
use testkit::rtsp::{Client, SDP_TYPE, TCP, rtp, serving};
use testkit::site::{ReadyServer, Site, outcome};
use testkit::skip::have;

const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

/// Splits a number in groups of seven bits off (leb128).
fn number(rest: &mut &[u8]) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, behind) = rest.split_first().expect("a number");
        *rest = behind;
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}

/// A number in groups of seven bits.
fn written(value: usize) -> Vec<u8> {
    match value {
        0..0x80 => vec![value as u8],
        _ => [&[value as u8 | 0x80][..], &written(value >> 7)].concat(),
    }
}

/// The OBUs of a temporal unit without lengths and without its delimiter, as packets have them.
fn obus(mut unit: &[u8]) -> Vec<Vec<u8>> {
    let mut obus = Vec::new();
    while let Some((header, behind)) = unit.split_first() {
        unit = behind;
        assert_eq!(header & 0x06, 0x02, "a length and no layers");
        let length = number(&mut unit);
        let (data, behind) = unit.split_at(length);
        unit = behind;
        if header >> 3 != 2 {
            obus.push([&[header & !0x02], data].concat());
        }
    }
    obus
}

/// Payloads of at most `most` bytes with the OBUs of a temporal unit. With `is_counted` packets say how many elements
/// they have, and the last one has no length.
fn payloads(obus: &[Vec<u8>], most: usize, is_counted: bool) -> Vec<Vec<u8>> {
    let has_sequence = obus[0][0] >> 3 == 1;
    let mut payloads = Vec::new();
    let (mut elements, mut continues): (Vec<&[u8]>, bool) = (Vec::new(), false);
    let mut room = most;
    let mut end = |elements: &mut Vec<&[u8]>, continues: bool, is_open: bool| {
        let count = if is_counted { elements.len() as u8 } else { 0 };
        let begins = has_sequence && payloads.is_empty();
        let head = u8::from(continues) << 7 | u8::from(is_open) << 6 | count << 4;
        let mut payload = vec![head | u8::from(begins) << 3];
        for (place, element) in elements.iter().enumerate() {
            if !is_counted || place + 1 < elements.len() {
                payload.extend(written(element.len()));
            }
            payload.extend_from_slice(element);
        }
        elements.clear();
        payloads.push(payload);
    };
    for obu in obus {
        let mut rest = &obu[..];
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(room));
            elements.push(part);
            (rest, room) = (behind, room - part.len());
            let is_open = !rest.is_empty();
            if is_open || room == 0 || is_counted && elements.len() == 3 {
                end(&mut elements, continues, is_open);
                (room, continues) = (most, is_open);
            }
        }
    }
    if !elements.is_empty() {
        end(&mut elements, continues, false);
    }
    payloads
}

/// Publishes the temporal units of an IVF file.
fn publish_av1(address: SocketAddr, ivf: &[u8], most: usize, is_counted: bool) {
    let description = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                       m=video 0 RTP/AVP 96\r\nb=AS:3000\r\na=rtpmap:96 AV1/90000\r\na=control:one\r\n";
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, description).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    let (mut rest, mut sequence) = (&ivf[32..], 65_500_u16);
    while let Some((head, behind)) = rest.split_first_chunk::<12>() {
        let length = u32::from_le_bytes(head[..4].try_into().expect("four")) as usize;
        let frame = u32::from_le_bytes(head[4..8].try_into().expect("four"));
        let (unit, behind) = behind.split_at(length);
        rest = behind;
        let payloads = payloads(&obus(unit), most, is_counted);
        for (place, payload) in payloads.iter().enumerate() {
            let mut packet = rtp(sequence, frame * 3_600, 7, payload);
            if place + 1 == payloads.len() {
                packet[1] |= 0x80;
            }
            client.packet(0, &packet);
            sequence = sequence.wrapping_add(1);
        }
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
}

/// The playlist of a recording as ffmpeg reads it, and its text.
fn playlist(serve: &ReadyServer, number: &str) -> (String, String) {
    let list = format!("/media/cam/{number}/index.m3u8");
    let (status, _, said) = get(http(serve), &list, "");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(status, 200, "{said}");
    (format!("http://{}{list}", http(serve)), said)
}

#[test]
fn av1_comes_back_from_files_and_lists() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let clip = site.path("a.ivf").display().to_string();
    let pictures = [
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=320x240:rate=25:duration=6",
    ];
    // Frames that are decoded before they are shown are in the temporal units of others.
    let encoded = ["-pix_fmt", "yuv420p", "-c:v", "libsvtav1", "-preset", "12"];
    let keys = ["-b:v", "500k", "-g", "50", &clip];
    outcome(ffmpeg().args(pictures).args(encoded).args(keys)).done();
    let ivf = std::fs::read(&clip).expect("the clip");
    let wanted = sums(&clip, &SEEN);
    assert_eq!(wanted.len(), 150);
    for (most, is_counted) in [(1_100, true), (300, false)] {
        publish_av1(address, &ivf, most, is_counted);
        let number = closed(&site);
        let file = export(&site, &number, "av1.mp4", &[]);
        assert_eq!(sums(&file, &SEEN), wanted, "{most}");
        let alone = export(&site, &number, "av1.obu", &["--track", "0"]);
        assert_eq!(sums(&alone, &SEEN), wanted, "{most}");
        let (list, said) = playlist(&serve, &number);
        assert!(said.contains("CODECS=\"av01.0."), "{said}");
        assert!(said.contains("RESOLUTION=320x240"), "{said}");
        assert_eq!(sums(&list, &SEEN), wanted, "{most}");
        // From a key frame on.
        let part = export(&site, &number, "part.mp4", &["--from", "4.5s"]);
        assert_eq!(sums(&part, &SEEN), wanted[100..], "{most}");
    }
    serve.terminate();
}

/// Publishes a clip without a limit of its speed, and returns the number of its recording.
fn record(site: &Site, address: SocketAddr, clip: &str) -> String {
    let to = ["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp"];
    let url = format!("rtsp://{address}/cam");
    let before = newest(site);
    outcome(ffmpeg().args(["-i", clip]).args(to).arg(&url)).done();
    closed_after(site, before)
}

/// Pictures that browsers do not play are in files, and their sound is in lists.
#[test]
fn pictures_that_only_files_have_disable_no_sound() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let mpeg4: &[&str] = &["-c:v", "mpeg4", "-q:v", "8", "-g", "25", "-bf", "0"];
    let jpeg: &[&str] = &[
        "-c:v", "mjpeg", "-q:v", "14", "-pix_fmt", "yuvj420p", "-huffman", "default",
    ];
    for (name, encoded, raw) in [("m.mp4", mpeg4, "m4v"), ("j.nut", jpeg, "mjpeg")] {
        let clip = clip(&site, name, 3, &[encoded, &["-c:a", "aac"]].concat());
        let wanted = sums(&clip, &SEEN);
        assert_eq!(wanted.len(), 75);
        let number = record(&site, address, &clip);
        let file = export(&site, &number, &format!("{raw}.mp4"), &[]);
        assert_eq!(sums(&file, &SEEN), wanted, "{name}");
        let alone = export(&site, &number, &format!("alone.{raw}"), &["--track", "0"]);
        assert_eq!(sums(&alone, &SEEN), wanted, "{name}");
        let (_, said) = playlist(&serve, &number);
        assert!(said.contains("CODECS=\"mp4a.40.2\""), "{said}");
        let path = format!("/media/cam/{number}/recording.json");
        let (_, _, json) = get(http(&serve), &path, "");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert!(
            json["tracks"][0]["why_not"]
                .to_string()
                .contains("browsers"),
            "{json}"
        );
        assert!(json["tracks"][1]["why_not"].is_null(), "{json}");
    }
    serve.terminate();
}

/// Uncompressed sound is in files as it was sent. G.722 is not, and disables no picture.
#[test]
fn sound_that_only_files_have_and_sound_that_none_has() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let h264 = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-bf",
        "0",
    ];
    let decoded = ["-map", "0:a", "-af", "asetnsamples=n=800:p=0"];
    let l16 = ["-c:a", "pcm_s16be", "-ar", "44100", "-ac", "2"];
    let of_l16 = clip(&site, "l.nut", 3, &[&h264[..], &l16].concat());
    let number = record(&site, address, &of_l16);
    let file = export(&site, &number, "l16.mp4", &[]);
    assert_eq!(sums(&file, &SEEN), sums(&of_l16, &SEEN));
    assert_eq!(sums(&file, &decoded), sums(&of_l16, &decoded));
    let (_, said) = playlist(&serve, &number);
    assert!(said.contains("avc1.") && !said.contains("twos"), "{said}");

    let g722 = ["-c:a", "g722", "-ar", "16000", "-ac", "1"];
    let of_g722 = clip(&site, "g.nut", 3, &[&h264[..], &g722].concat());
    let number = record(&site, address, &of_g722);
    let file = export(&site, &number, "g722.mp4", &[]);
    assert_eq!(sums(&file, &SEEN), sums(&of_g722, &SEEN));
    let shown = site.json(&["recording", "show", "cam", &number]);
    let why = shown["tracks"][1]["why_not_mp4"].to_string();
    assert!(why.contains("no name"), "{shown}");
    let (_, said) = playlist(&serve, &number);
    assert!(said.contains("CODECS=\"avc1."), "{said}");
    serve.terminate();
}
