//! A recording that is being made, without anybody who sends it.

use std::ops::Range;
use std::sync::Arc;

use engine::volume_io::ClientOptions;
use media::archive::{ActiveRecording, Archive};
use media::files::Source;
use media::sdp::Description;

use crate::support::rig::Rig;
use crate::support::small::{Camera, Small};

pub(crate) const TEXT: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n\
                    a=control:sound\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:picture\r\n";

/// A camera of key frames in most blocks, which begin 0.09 s apart.
pub(crate) const CAMERA: Camera = Camera {
    number: 1,
    first: 0,
    blocks: 900,
    is_ended: false,
    gop: 5,
    packets: 8,
    parts: 3,
};

/// A recording that is being made.
pub(crate) struct Made {
    pub(crate) rig: Rig,
    pub(crate) archive: Arc<Archive>,
    writing: ActiveRecording,
    pub(crate) small: Small,
}

impl Made {
    pub(crate) fn new(small: Small) -> Self {
        let rig = Rig::new((2 * small.bytes()).max(64 << 20));
        let volume = rig.volume("cam", small.bytes());
        // Nothing is there of it yet but the archive.
        Self::some(&small, 0..0).write(&rig.client, &volume);
        let archive = Arc::new(Archive::open(&rig.client, volume).unwrap());
        let writing = archive.record().unwrap();
        Self {
            rig,
            archive,
            writing,
            small,
        }
    }

    fn some(small: &Small, serials: Range<u64>) -> Small {
        let mut some = small.clone();
        some.blocks.retain(|serial, _| serials.contains(serial));
        some
    }

    /// Records these blocks.
    pub(crate) fn records(&mut self, serials: Range<u64>) {
        self.writes(serials.clone());
        serials.for_each(|serial| self.writing.written(serial, 1));
    }

    /// Writes them and nothing else, as where they are there already.
    pub(crate) fn writes(&self, serials: Range<u64>) {
        let some = Self::some(&self.small, serials);
        some.write(&self.rig.client, self.archive.volume());
    }

    /// A reader of it.
    pub(crate) fn source(&self) -> Source {
        let client = self.rig.pool.client("cuts", ClientOptions::default());
        let recording = self.archive.recording(None).unwrap();
        let description = Description::parse(TEXT.as_bytes()).unwrap();
        let archive = Arc::clone(&self.archive);
        Source::new(archive, Arc::new(client.unwrap()), recording, description)
    }
}
