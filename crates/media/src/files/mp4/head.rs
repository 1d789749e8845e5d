//! The head of a track: its decoder configuration for MP4 files and players.

mod video;

use mp4_atom::esds::{DecoderConfig, DecoderSpecific};
use mp4_atom::{Audio, Dops, Mp4a, Opus};

use super::entry::{SampleEntry, descriptor};
use super::*;
use crate::files::aac;

/// The decoder configuration of a track.
#[derive(Clone, PartialEq, Debug)]
pub struct TrackHead {
    /// Its number in the file, from 1.
    pub id: u32,
    /// Ticks per second.
    pub timescale: u32,
    pub(super) entry: SampleEntry,
    size: Option<(u16, u16)>,
    /// Its name for players (RFC 6381).
    pub codec: String,
}

impl TrackHead {
    /// Its number in the recording, from 0.
    #[must_use]
    pub fn track(&self) -> usize {
        self.id as usize - 1
    }

    /// Width and height in pixels; `None` for audio.
    #[must_use]
    pub fn size(&self) -> Option<(u16, u16)> {
        self.size
    }

    /// A track of AAC.
    #[must_use]
    pub fn aac(id: u32, timescale: u32, config: &aac::Config) -> Self {
        let specific = DecoderSpecific {
            profile: config.object_type,
            freq_index: config.frequency_index,
            chan_conf: config.channels,
            raw: config.specific.clone(),
        };
        let dec_config = DecoderConfig {
            object_type_indication: 0x40,
            stream_type: 5,
            dec_specific: Some(specific),
            ..DecoderConfig::default()
        };
        // The box has 16 bits for the rate. A clock that does not fit is not the sampling rate.
        let rate = match u16::try_from(timescale) {
            Ok(_) => timescale,
            Err(_) => config.frequency(),
        };
        let entry = Mp4a {
            audio: audio(u16::from(config.channels), rate),
            esds: descriptor(id, dec_config),
            btrt: None,
            taic: None,
        };
        Self {
            id,
            timescale,
            entry: entry.into(),
            size: None,
            codec: format!("mp4a.40.{}", config.object_type),
        }
    }

    /// A track of Opus.
    #[must_use]
    pub fn opus(id: u32, timescale: u32, channels: u8) -> Self {
        let entry = Opus {
            audio: audio(u16::from(channels), timescale),
            dops: Dops {
                output_channel_count: channels,
                pre_skip: 0,
                input_sample_rate: timescale,
                output_gain: 0,
                channel_mapping: None,
            },
            btrt: None,
        };
        Self {
            id,
            timescale,
            entry: entry.into(),
            size: None,
            codec: "opus".to_owned(),
        }
    }

    /// A track of sound in samples that need no decoder configuration, with this name in files (QuickTime File Format,
    /// "Sound sample description").
    #[must_use]
    pub fn samples(id: u32, timescale: u32, channels: u8, name: [u8; 4]) -> Option<Self> {
        Some(Self {
            id,
            timescale,
            entry: SampleEntry::samples(name, &audio(u16::from(channels), timescale))?,
            size: None,
            codec: String::from_utf8_lossy(&name).into_owned(),
        })
    }

    pub(super) fn trak(&self) -> Trak {
        let is_video = self.size.is_some();
        let (width, height) = self.size.unwrap_or_default();
        let url = Url::default();
        let minf = Minf {
            vmhd: is_video.then(Vmhd::default),
            smhd: (!is_video).then(Smhd::default),
            dinf: Dinf {
                dref: Dref {
                    entries: vec![DrefEntry::Url(url)],
                },
            },
            stbl: Stbl {
                stsd: Stsd {
                    // Entries of other kinds are inserted afterwards.
                    codecs: self.entry.known().into_iter().cloned().collect(),
                },
                stco: Some(Stco::default()),
                ..Stbl::default()
            },
            ..Minf::default()
        };
        let (handler, name) = match is_video {
            true => (b"vide", "video"),
            false => (b"soun", "sound"),
        };
        Trak {
            tkhd: Tkhd {
                track_id: self.id,
                enabled: true,
                in_movie: true,
                volume: u8::from(!is_video).into(),
                width: width.into(),
                height: height.into(),
                ..Tkhd::default()
            },
            mdia: Mdia {
                mdhd: Mdhd {
                    timescale: self.timescale,
                    language: "und".to_owned(),
                    ..Mdhd::default()
                },
                hdlr: Hdlr {
                    handler: FourCC::new(handler),
                    name: name.to_owned(),
                },
                minf,
            },
            ..Trak::default()
        }
    }
}

fn audio(channel_count: u16, rate: u32) -> Audio {
    Audio {
        data_reference_index: 1,
        channel_count,
        sample_size: 16,
        // A rate that does not fit is in the decoder configuration only.
        sample_rate: u16::try_from(rate).unwrap_or(0).into(),
    }
}
