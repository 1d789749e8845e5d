//! RTSP with GStreamer: what it publishes is played by others, and it plays what there is.

use testkit::rtsp::clip::clip;
use testkit::rtsp::peers::{frames, has_cut_itself, has_played, recordings};
use testkit::rtsp::serving;
use testkit::site::outcome;
use testkit::skip::{have, tool};
use testkit::until;

const SECONDS: usize = 3;
const FRAMES: usize = 25 * SECONDS;

/// Runs a pipeline to its end.
fn pipeline(text: &str) {
    let mut command = tool("gst-launch-1.0");
    has_played(&outcome(command.arg("-q").args(text.split(' '))));
}

/// Runs a pipeline that publishes. By UDP it sends everything and sometimes does not end then (1.22): the
/// recording shows if it has sent all.
fn publish(text: &str) {
    let mut command = tool("timeout");
    let limit = (SECONDS + 12).to_string();
    command.args(["--signal=KILL", &limit, "gst-launch-1.0", "-q"]);
    let ended = outcome(command.args(text.split(' ')));
    let is_cut = has_cut_itself(&ended, "gst_rtsp_client_sink_try_send ()");
    assert!(ended.err.is_empty() || is_cut, "{}", ended.err);
}

#[test]
fn gstreamer_publishes_and_plays() {
    if !have("ffmpeg") || !have("gst-launch-1.0") {
        return;
    }
    let (site, serve, address) = serving("");
    let clip = clip(&site);
    let expected = frames(&["-i", &clip]);
    assert_eq!(expected.len(), FRAMES);
    for (number, transport) in (1..).zip(["tcp", "udp"]) {
        let url = format!("rtsp://{address}/cam");
        publish(&format!(
            "filesrc location={clip} ! qtdemux ! h264parse config-interval=-1 \
             ! rtspclientsink location={url} protocols={transport}"
        ));
        until("the recording is closed", || {
            let listed = recordings(&site, "cam");
            listed.len() == number && listed[number - 1]["is_recorded"] == false
        });
        let played = frames(&["-rtsp_transport", transport, "-i", &url]);
        assert_eq!(played, expected, "by {transport}");
        let out = site.path(transport).display().to_string();
        pipeline(&format!(
            "rtspsrc location={url} protocols={transport} ! rtph264depay ! h264parse \
             ! video/x-h264,stream-format=byte-stream ! filesink location={out}"
        ));
        let shown = frames(&["-f", "h264", "-i", &out]);
        assert_eq!(shown, expected, "by {transport}");
    }
    serve.terminate();
}
