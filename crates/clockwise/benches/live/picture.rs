//! Pictures that show the time of the wall clock, and readers of that time.
//!
//! The time is in the upper left corner in black and white cells: 24 bits of milliseconds, and 8 bits that check them.
//! Noise below it gives the encoder something to do.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use testkit::process::Process;
use testkit::rtsp::peers::ffmpeg;

const WIDTH: usize = 640;
const HEIGHT: usize = 360;
const CELL: usize = 40;
const COLUMNS: usize = 8;
const ROWS: usize = 4;
const FRAMES_PER_SECOND: u64 = 25;
const BLACK: u8 = 16;
const WHITE: u8 = 235;
const GREY: u8 = 128;
/// Bits of the time; the milliseconds begin again after more than four hours.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Reads the time from a canvas with the upper left corner of a picture. The script of [`code`].
pub(crate) const READ_CANVAS: &str = "
    const canvas = document.createElement('canvas'); canvas.width = 320; canvas.height = 160;
    const context = canvas.getContext('2d', { willReadFrequently: true });
    // The time that a video shows, as its delay in milliseconds; null if there is none.
    const delay_ms = video => {
        context.drawImage(video, 0, 0, 320, 160, 0, 0, 320, 160);
        const now = Date.now(), pixels = context.getImageData(0, 0, 320, 160).data;
        let code = 0;
        for (let cell = 0; cell < 32; cell++) {
            const x = 40 * (cell % 8) + 20, y = 40 * (cell >> 3) + 20;
            code = code * 2 + (pixels[4 * (y * 320 + x)] > 128 ? 1 : 0);
        }
        const time = Math.floor(code / 256);
        const check = (time ^ (time >> 8) ^ (time >> 16) ^ 0xa5) & 0xff;
        return check === code % 256 ? (now - time) & 0xffffff : null;
    };";

fn now_ms() -> u64 {
    UNIX_EPOCH.elapsed().expect("it is later").as_millis() as u64
}

/// The cells of a time.
fn code(ms: u64) -> u32 {
    let time = (ms & TIME_MASK) as u32;
    let check = (time ^ (time >> 8) ^ (time >> 16) ^ 0xa5) & 0xff;
    time << (32 - TIME_BITS) | check
}

/// The delay of a time that is read now, in milliseconds.
fn delay_of(code_read: u32) -> Option<u64> {
    let time = u64::from(code_read >> (32 - TIME_BITS));
    (code(time) == code_read).then(|| now_ms().wrapping_sub(time) & TIME_MASK)
}

/// A picture in planar YUV 4:2:0 with `noisy_rows` rows of noise.
fn draw(picture: &mut [u8], noisy_rows: usize, random: &mut u64) {
    picture.fill(GREY);
    let noise = (HEIGHT - noisy_rows) * WIDTH..HEIGHT * WIDTH;
    for pixels in picture[noise].chunks_mut(8) {
        // Xorshift, for which any number but 0 is a seed.
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        pixels.fill(96 + (*random & 63) as u8);
    }
    let code = code(now_ms());
    for cell in 0..COLUMNS * ROWS {
        let is_white = code >> (31 - cell) & 1 == 1;
        let (x, y) = (cell % COLUMNS * CELL, cell / COLUMNS * CELL);
        for row in y..y + CELL {
            let pixels = &mut picture[row * WIDTH + x..][..CELL];
            pixels.fill(if is_white { WHITE } else { BLACK });
        }
    }
}

/// A camera that shows the time: ffmpeg encodes pictures of ours and publishes them.
pub(crate) struct Camera {
    stop: Arc<AtomicBool>,
    drawing: Option<JoinHandle<()>>,
    _encoder: Process,
}

impl Camera {
    /// Publishes in real time at a constant rate, with a key frame each second.
    pub(crate) fn publishes(address: SocketAddr, path: &str, kbit: u64) -> Self {
        let rate = format!("{kbit}k");
        let buffer = format!("{}k", kbit / 5);
        let mut command = ffmpeg();
        let size = format!("{WIDTH}x{HEIGHT}");
        command.args(["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", &size]);
        command.args(["-r", &FRAMES_PER_SECOND.to_string(), "-i", "-"]);
        command.args("-c:v libx264 -preset ultrafast -tune zerolatency -g 25".split(' '));
        command.args(["-x264-params", "nal-hrd=cbr", "-b:v", &rate]);
        command.args(["-minrate", &rate, "-maxrate", &rate, "-bufsize", &buffer]);
        command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
        command.arg(format!("rtsp://{address}/{path}"));
        let mut encoder = Process::spawn(command.stdin(Stdio::piped()));
        let to = encoder.stdin.take().expect("it is piped");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // The larger the rate, the more noise fills it.
        let noisy_rows = (kbit / 12).min(160) as usize / 8 * 8;
        let drawing = std::thread::spawn(move || draw_in_time(to, noisy_rows, &stopped));
        Self {
            stop,
            drawing: Some(drawing),
            _encoder: encoder,
        }
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(drawing) = self.drawing.take() {
            // A panic of it was printed.
            let _ = drawing.join();
        }
    }
}

fn draw_in_time(mut to: ChildStdin, noisy_rows: usize, stop: &AtomicBool) {
    let mut picture = vec![0; WIDTH * HEIGHT * 3 / 2];
    let (begin, mut random) = (Instant::now(), 1);
    for number in 0.. {
        let due = begin + Duration::from_nanos(number * 1_000_000_000 / FRAMES_PER_SECOND);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        draw(&mut picture, noisy_rows, &mut random);
        // ffmpeg is gone at the end.
        if stop.load(Ordering::Relaxed) || to.write_all(&picture).is_err() {
            return;
        }
    }
}

/// Delays of pictures that ffmpeg plays over RTSP, in milliseconds: those that come in `length`, from two seconds after
/// the first one on. The first pictures are as old as the latest key frame.
pub(crate) fn play_rtsp(input: &[&str], length: Duration) -> Vec<f64> {
    let mut command = ffmpeg();
    command.args("-fflags nobuffer -flags low_delay -threads 1 -rtsp_transport tcp".split(' '));
    command.args(input);
    command.args(["-an", "-vf", "crop=320:160:0:0,format=gray"]);
    command.args("-fps_mode passthrough -f rawvideo -".split(' '));
    let mut player = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    let mut from = player.stdout.take().expect("it is piped");
    let mut corner = vec![0; COLUMNS * CELL * ROWS * CELL];
    let mut read = || {
        from.read_exact(&mut corner).expect("ffmpeg plays");
        let cells = (0..COLUMNS * ROWS).fold(0, |code, cell| {
            let (x, y) = (cell % COLUMNS * CELL, cell / COLUMNS * CELL);
            let middle = (y + CELL / 2) * COLUMNS * CELL + x + CELL / 2;
            code << 1 | u32::from(corner[middle] > GREY)
        });
        delay_of(cells).expect("the picture shows the time")
    };
    read();
    let begin = Instant::now() + Duration::from_secs(2);
    let mut delays = Vec::new();
    while Instant::now() < begin + length {
        let delay_ms = read();
        if Instant::now() >= begin {
            delays.push(delay_ms as f64);
        }
    }
    delays
}
