// Plays a recording, or the newest one of a volume.
//
// The server lists at most some minutes of a recording at a time. This script asks for the next list when one is
// played to its end, or when the user goes to another time. `docs/reference/http.md` describes the URLs.
"use strict";

const element = id => document.getElementById(id);
const video = element("video");
const isLivePage = document.body.dataset.kind === "live";
// The page's URL without user and password: browsers refuse to fetch URLs that contain them.
const page = location.origin + location.pathname;

// Seconds without new data after which a camera counts as lost.
const LOST_S = 15;
// Seconds of the oldest part of an active recording that are not asked for.
const MARGIN_S = 5;
const ASK_MS = 2000;
const RETRY_MS = 1000;
// WebRTC shows its first picture within this time, or HLS is tried.
const WEBRTC_MS = 4000;

// What is known of the recording: recording.json.
let known = null;
// When it grew last, by this browser's clock.
let grownAt = Date.now();
// The present playing: {way, number, from, stop()}; `from` is null at the end of an active recording.
let playing = null;
// Problems by their cause. The page shows the first one.
const problems = new Map();

function problem(cause, text) {
  if (text) problems.set(cause, text); else problems.delete(cause);
  const [first] = problems.values();
  if (element("said").textContent !== (first ?? "")) element("said").textContent = first ?? "";
}

const sleep = ms => new Promise(done => setTimeout(done, ms));
const date = seconds => new Date(known.begun_unix_ms + 1000 * seconds);
const shown = when => `${when.toLocaleDateString()} ${when.toLocaleTimeString()}`;

// What helps when the server answers with this status; undefined if trying again does.
function refusal(status) {
  if (status === 401) return "You are not logged in. Load the page again, and enter user and password.";
  if (status === 403) return "You may not see this recording. Log in as another user, or ask for the permission.";
  if (status === 404) return isLivePage ? undefined : "This recording was deleted or overwritten. \"All recordings\" shows what there is.";
  if (status >= 400 && status < 500) return "The server cannot make a stream of this recording. Play it over RTSP.";
}

// The answer to a request, which is repeated as long as the server cannot be reached or is busy. Null if it refuses.
async function ask(url, isWanted = () => true) {
  while (isWanted()) {
    let wait = RETRY_MS;
    try {
      // The server waits 10 s for a camera that it calls on demand.
      const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(20000) });
      problem("network");
      if (answer.ok) return answer;
      const why = refusal(answer.status);
      const said = await answer.json().then(of => of.what, () => answer.statusText);
      if (why) {
        problem("refused", `${why}\nThe server says: ${said}`);
        return null;
      }
      if (answer.status === 404) problem("nothing", /arrives/.test(said) ? "Nothing arrives from the camera now. Trying again." : "Nothing has been recorded yet.");
      else problem("network", `The server is busy: ${said}. Trying again.`);
      wait = 1000 * (Number(answer.headers.get("Retry-After")) || 1);
    } catch {
      problem("network", "The server cannot be reached. Trying again.");
    }
    await sleep(wait);
  }
  return null;
}

async function look() {
  const answer = await ask(page + "recording.json");
  if (!answer) return false;
  const now = await answer.json();
  problem("nothing");
  if (known?.number !== now.number || known.ends_s < now.ends_s) grownAt = Date.now();
  const isOther = known?.number !== now.number;
  known = now;
  if (isOther) tracksChanged();
  return true;
}

// Names of encodings for people.
const NAMES = { H265: "H.265 (HEVC)", H264: "H.264", PCMU: "G.711", PCMA: "G.711", G722: "G.722", "MP4V-ES": "MPEG-4 Visual", JPEG: "Motion JPEG" };
const named = track => NAMES[track.encoding] ?? (track.encoding || "an unknown encoding");

function canPlay(track) {
  if (!track.codec) return false;
  const kind = `${track.is_picture ? "video" : "audio"}/mp4; codecs="${track.codec}"`;
  return (window.ManagedMediaSource ?? window.MediaSource)?.isTypeSupported(kind) ?? video.canPlayType(kind) !== "";
}

// Says which tracks cannot be shown, and why.
function tracksChanged() {
  const shows = track => canPlay(track) || playing?.isWebRtc && track.is_webrtc;
  const lines = known.tracks.filter(track => !shows(track)).map(track => {
    const what = `Track ${track.number}, ${named(track)}, is not shown: `;
    return what + (track.why_not ?? "this browser has no decoder for it") + ".";
  });
  element("tracks").textContent = lines.join("\n");
  const isPictureLost = known.tracks.some(of => of.is_picture) && !known.tracks.some(of => of.is_picture && shows(of));
  const [lost] = known.tracks.filter(of => of.is_picture);
  const help = lost?.codec
    ? "Use a browser or a computer that decodes it, set the camera to H.264, download the recording, or play it over RTSP."
    : "Play it over RTSP.";
  const isNothingLeft = !known.tracks.some(shows);
  problem("tracks", isNothingLeft && !lost ? "Nothing of this recording can be played by a browser. Play it over RTSP." : isPictureLost ? `The picture is ${named(lost)}, which ${lost.codec ? "this browser cannot play" : "browsers cannot be sent"}. ${help}` : "");
  element("file").href = `../${known.number}/recording.mp4`;
  // A stream that is live only has no file.
  element("file").hidden = known.number === 0;
}

// The URL of a playlist from a time on, or of the newest part.
function listUrl(name, from) {
  const query = new URLSearchParams();
  if (from !== null) query.set("from", from.toFixed(3));
  const tracks = known.tracks.filter(canPlay).map(of => of.number);
  if (tracks.length < known.tracks.filter(of => of.codec).length) query.set("tracks", tracks.join(","));
  const base = isLivePage && from !== null ? new URL(`../${known.number}/`, page).href : page;
  return base + name + (query.size ? `?${query}` : "");
}

// The segments of a list: when each begins, in milliseconds since 1970, and its length in seconds.
async function listed(from, isWanted) {
  const answer = await ask(listUrl("media.m3u8", from), isWanted);
  if (!answer) return null;
  const found = { segments: [], ends: false };
  let at = 0, length = 0;
  for (const line of (await answer.text()).split("\n")) {
    if (line.startsWith("#EXTINF:")) length = parseFloat(line.slice(8));
    else if (line.startsWith("#EXT-X-PROGRAM-DATE-TIME:")) at = Date.parse(line.slice(25));
    else if (line === "#EXT-X-ENDLIST") found.ends = true;
    else if (line && !line.startsWith("#")) {
      found.segments.push({ at, length });
      at += 1000 * length;
    }
  }
  return found;
}

// Ways to play, the best first. Each takes {from, startAt, onEnd} and returns {stop, date, goTo}, or null if this
// browser cannot play in this way. The next way is tried then.
const WAYS = [playWithScript, playWithBrowser];

// Ways to play what arrives now, for the live page only.
const LIVE_WAYS = [playWebRtc, playParts];

// Until then the live page does not play in this way, because that did not work.
const withoutUntil = new Map();

function without(way, ms) {
  withoutUntil.set(way, Date.now() + ms);
  restart();
}

// Plays what arrives now by WebRTC (WHEP), if that carries all tracks that this browser plays. A camera with sound in
// AAC plays by HLS: WebRTC has no AAC.
function playWebRtc() {
  if (!window.RTCPeerConnection || new URLSearchParams(location.search).has("hls")) return null;
  const tracks = known.tracks.filter(of => canPlay(of) || of.is_webrtc);
  if (!tracks.length || !tracks.every(of => of.is_webrtc)) return null;
  const peer = new RTCPeerConnection();
  const stream = new MediaStream();
  let isStopped = false, session = null, seen = 0;
  for (const kind of ["video", "audio"]) {
    if (tracks.some(of => of.is_picture === (kind === "video"))) peer.addTransceiver(kind, { direction: "recvonly" });
  }
  const fails = ms => { if (!isStopped) without(playWebRtc, ms); };
  // The network may not let it through: HLS is tried then.
  const late = setTimeout(() => seen || fails(60000), WEBRTC_MS);
  const watch = setInterval(() => { seen = video.currentTime; }, 500);
  peer.addEventListener("track", event => {
    stream.addTrack(event.track);
    // Pictures are shown as they arrive, and do not wait for a network that may become slower.
    if ("jitterBufferTarget" in event.receiver) event.receiver.jitterBufferTarget = 0;
  });
  peer.addEventListener("connectionstatechange", () => ["failed", "closed", "disconnected"].includes(peer.connectionState) && fails(seen ? 0 : 60000));
  const begin = async () => {
    await peer.setLocalDescription();
    // The server answers at its own addresses, so it needs none of this browser's.
    const answer = await fetch(page + "whep", { method: "POST", headers: { "Content-Type": "application/sdp" }, body: peer.localDescription.sdp });
    if (answer.status !== 201) return fails(answer.status === 404 && known.is_recorded ? 1000 : 60000);
    session = new URL(answer.headers.get("Location"), page).href;
    if (isStopped) return end();
    problem("network");
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    video.srcObject = stream;
    video.play().catch(() => {});
  };
  const end = () => session && fetch(session, { method: "DELETE", keepalive: true }).catch(() => {});
  begin().catch(() => fails(1000));
  return {
    isWebRtc: true,
    stop() {
      isStopped = true;
      clearTimeout(late);
      clearInterval(watch);
      peer.close();
      video.srcObject = null;
      end();
    },
    // About the present: the delay is less than a second.
    date: () => seen ? Date.now() : null,
    goTo: () => false,
  };
}

// Plays what arrives now, in parts (low-latency HLS), for the live page only.
function playParts(onEnd) {
  const settings = { lowLatencyMode: true, liveSyncDuration: undefined, maxLiveSyncPlaybackRate: 1.3 };
  return playWithScript({ from: null, onEnd }, page + "low/index.m3u8", settings, [400, 404], () => without(playParts, 10000));
}

// Plays HLS by hls.js and Media Source Extensions.
function playWithScript({ from, startAt, onEnd }, source = listUrl("index.m3u8", from), settings = {}, missing = [404], onMissing = restart) {
  if (!Hls.isSupported()) return null;
  const policy = {
    default: {
      maxTimeToFirstByteMs: 20000,
      maxLoadTimeMs: 60000,
      timeoutRetry: { maxNumRetry: 1000, retryDelayMs: RETRY_MS, maxRetryDelayMs: 4000 },
      errorRetry: { maxNumRetry: 1000, retryDelayMs: RETRY_MS, maxRetryDelayMs: 4000 },
    },
  };
  const hls = new Hls({
    enableWorker: false,
    startPosition: startAt ?? -1,
    liveSyncDuration: 4,
    liveDurationInfinity: true,
    maxBufferLength: 20,
    backBufferLength: 60,
    manifestLoadPolicy: policy,
    playlistLoadPolicy: policy,
    fragLoadPolicy: policy,
    ...settings,
  });
  let recovered = 0;
  hls.on(Hls.Events.ERROR, (_, data) => {
    const status = data.response?.code ?? 0;
    if (data.type === Hls.ErrorTypes.NETWORK_ERROR) {
      // A segment that was overwritten: the list has later ones.
      if (missing.includes(status)) return onMissing();
      const why = status && refusal(status);
      if (why) {
        problem("refused", why);
        return hls.stopLoad();
      }
      problem("network", status ? "The server is busy. Trying again." : "The server cannot be reached. Trying again.");
      if (data.fatal) restart();
    } else if (data.fatal && data.type === Hls.ErrorTypes.MEDIA_ERROR && Date.now() - recovered > 10000) {
      recovered = Date.now();
      hls.recoverMediaError();
    } else if (data.fatal) {
      problem("refused", `This browser cannot decode it: ${data.details}. Download the recording instead.`);
      hls.destroy();
    }
  });
  const isReachable = () => problem("network");
  hls.on(Hls.Events.FRAG_LOADED, isReachable);
  hls.on(Hls.Events.LEVEL_LOADED, isReachable);
  hls.loadSource(source);
  hls.attachMedia(video);
  const fragments = () => hls.latestLevelDetails?.fragments ?? hls.levels[0]?.details?.fragments ?? [];
  const ended = () => {
    const last = fragments().at(-1);
    onEnd(last && (last.programDateTime + 1000 * last.duration));
  };
  video.addEventListener("ended", ended);
  return {
    stop() {
      video.removeEventListener("ended", ended);
      hls.destroy();
    },
    date: () => hls.playingDate?.getTime() ?? null,
    // Goes to a date within the list; false if it is not there.
    goTo(when) {
      const ends = of => of.programDateTime + 1000 * of.duration;
      const found = fragments().find(of => of.programDateTime <= when && when < ends(of));
      if (!found) return false;
      video.currentTime = found.start + (when - found.programDateTime) / 1000;
      return true;
    },
  };
}

// Plays HLS by the browser's own player.
function playWithBrowser({ from, startAt, onEnd, list }) {
  if (!video.canPlayType("application/vnd.apple.mpegurl")) return null;
  const last = list.segments.at(-1);
  const ended = () => onEnd(last && last.at + 1000 * last.length);
  const failed = () => setTimeout(restart, 2 * RETRY_MS);
  video.src = listUrl("index.m3u8", from);
  if (startAt) video.currentTime = startAt;
  video.addEventListener("ended", ended);
  video.addEventListener("error", failed);
  return {
    stop() {
      video.removeEventListener("ended", ended);
      video.removeEventListener("error", failed);
      video.removeAttribute("src");
      video.load();
    },
    date: () => video.getStartDate ? video.getStartDate().getTime() + 1000 * video.currentTime : list.segments[0].at + 1000 * video.currentTime,
    goTo: () => false,
  };
}

let turn = 0;

// Plays from a time of the recording in seconds, or with null the newest part.
async function play(from) {
  const mine = ++turn;
  const isMine = () => mine === turn;
  // Another source would be played at the usual speed.
  video.defaultPlaybackRate = video.playbackRate;
  playing?.stop();
  playing = null;
  problem("refused");
  if (!known.tracks.some(of => canPlay(of) || isLivePage && of.is_webrtc)) return;
  const onEnd = last => isMine() && goOn(last);
  if (isLivePage && from === null && known.is_recorded) {
    for (const way of LIVE_WAYS) {
      const started = Date.now() < (withoutUntil.get(way) ?? 0) ? null : way(onEnd);
      if (started) {
        problem("nothing");
        playing = { ...started, from, number: known.number };
        tracksChanged();
        video.play().catch(() => {});
        return;
      }
    }
  }
  // The oldest segments may be overwritten before they are shown.
  if (from !== null && known.is_recorded && known.begins_s > 1) from = Math.max(from, known.begins_s + MARGIN_S);
  tracksChanged();
  if (!known.tracks.some(canPlay)) return;
  let list = await listed(from, isMine);
  // Nothing is complete yet, or there is nothing at that time.
  while (isMine() && list && !list.segments.length && !list.ends) {
    problem("nothing", "Nothing has been recorded yet.");
    await sleep(ASK_MS);
    list = await listed(from, isMine);
  }
  if (!isMine() || !list) return;
  if (!list.segments.length) {
    problem("nothing", from === null || from <= known.begins_s
      ? "Nothing of it can be played." : `Nothing was recorded at ${shown(date(from))}. Choose another time.`);
    return;
  }
  const first = list.segments[0].at;
  const wanted = from === null ? null : date(from).getTime();
  const isLate = wanted !== null && first > wanted + 5000 && from > known.begins_s;
  problem("nothing", isLate ? `Nothing was recorded from ${shown(new Date(wanted))} to ${shown(new Date(first))}.` : "");
  if (isLate) setTimeout(() => isMine() && problem("nothing"), 10000);
  const startAt = wanted === null ? undefined : Math.max(0, wanted - first) / 1000;
  const isOver = from === null && list.ends;
  for (const way of WAYS) {
    const started = way({ from, startAt: isOver ? 0 : startAt, onEnd, list });
    if (started) {
      playing = { ...started, from };
      video.play().catch(() => {});
      return;
    }
  }
  problem("refused", "This browser can play no stream. Download the recording instead.");
}

// A list was played to its end, which was at this date: the next one follows, if there is one.
async function goOn(last) {
  if (!await look() || !last) return;
  const seconds = (last - known.begun_unix_ms) / 1000;
  if (seconds < known.ends_s - 1 && seconds > known.begins_s) play(seconds);
  else if (known.is_recorded || isLivePage) play(null);
}

// Begins again where it stopped.
async function restart() {
  const at = playing?.date();
  const isAtEnd = !playing || playing.from === null;
  const from = playing?.from;
  playing?.stop();
  playing = null;
  const mine = ++turn;
  await sleep(RETRY_MS);
  if (mine !== turn || !await look() || mine !== turn) return;
  if (isAtEnd && (known.is_recorded || isLivePage)) return play(null);
  const seconds = at == null ? from ?? known.begins_s : (at - known.begun_unix_ms) / 1000;
  play(Math.max(known.begins_s, seconds));
}

// Goes to a time of the recording in seconds.
function goTo(seconds) {
  if (!playing?.goTo(date(seconds).getTime())) play(seconds);
}

function showTime() {
  const at = playing?.date();
  element("time").textContent = at ? shown(new Date(at)) : "";
  const bar = element("at");
  bar.min = known.begins_s;
  bar.max = known.ends_s;
  bar.hidden = false;
  if (at && !bar.matches(":active")) bar.value = (at - known.begun_unix_ms) / 1000;
  element("live").hidden = !(known.is_recorded || isLivePage) || playing?.from === null;
}

function showState() {
  const silent_s = (Date.now() - grownAt) / 1000;
  const isAtEnd = playing?.from === null;
  problem("state", !isAtEnd ? ""
    : known.is_recorded ? (silent_s > LOST_S ? `Nothing arrives from the camera since ${shown(date(known.ends_s))}. Check its power and network.` : "")
    : isLivePage ? `The recording ended at ${shown(date(known.ends_s))}. This page shows the next one when it begins.` : "");
}

element("at").addEventListener("change", event => goTo(Number(event.target.value)));
element("live").addEventListener("click", () => play(null));

async function run() {
  if (!await look()) return;
  play(null);
  setInterval(() => { showTime(); showState(); }, 500);
  for (;;) {
    await sleep(ASK_MS);
    const had = known.tracks.map(of => of.codec).join();
    if (!known.is_recorded && !isLivePage) continue;
    if (!await look()) return;
    // Another recording may have other tracks; its segments follow in the same list.
    const isOther = had !== known.tracks.map(of => of.codec).join() || playing?.number !== undefined && playing.number !== known.number;
    if (isLivePage && playing?.from === null && isOther) play(null);
    if (isLivePage && !playing && problems.size === 0) play(null);
  }
}
run();
