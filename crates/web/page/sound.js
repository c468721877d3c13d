// Audio in the browser: streaming playback, waveform drawing, WAV export.

import { h, icon } from "./dom.js";
import { t } from "./i18n.js";

export const RATE = 24_000;

/** The current playback; there is one at a time on the page. */
let playing = null;
function takeTurn(player) {
  if (playing && playing !== player) playing.pause();
  playing = player;
}

let context = null;
/** Created on a click: browsers block audio before a user gesture. */
export function audioContext() {
  context ??= new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
  if (context.state === "suspended") context.resume();
  return context;
}

/** Samples that are still arriving, played as early as possible without gaps. */
export class LiveSound {
  constructor() {
    this.context = audioContext();
    this.pieces = [];
    this.length = 0;
    this.peaks = [];
    this.isComplete = false;
    this.underruns = 0;
    this.onchange = () => {};
    this.sources = new Set();
    /** Start of each piece: time of the audio context and position in the audio. */
    this.marks = [];
    this.nextTime = 0;
    this.lead = 0.05;
    this.rest = new Uint8Array(0);
    this.waiting = [];
    this.waitingLength = 0;
    this.isPlaying = true;
    this.offset = 0;
    takeTurn(this);
  }

  get seconds() {
    return this.length / RATE;
  }

  /** Bytes of 16-bit samples, split at any position. */
  add(bytes) {
    const all = new Uint8Array(this.rest.length + bytes.length);
    all.set(this.rest);
    all.set(bytes, this.rest.length);
    const count = all.length >> 1;
    this.rest = all.slice(count * 2);
    if (count === 0) return;
    const view = new DataView(all.buffer);
    const samples = new Float32Array(count);
    for (let i = 0; i < count; i++) samples[i] = view.getInt16(i * 2, true) / 32768;
    this.pieces.push(samples);
    this.waiting.push(samples);
    this.waitingLength += count;
    this.length += count;
    this.addPeaks(samples);
    // Very short pieces cost more time than they play.
    if (this.waitingLength >= RATE / 50 && this.isPlaying && this.marks !== null) this.schedule();
    this.onchange();
  }

  addPeaks(samples) {
    const width = 240;
    for (let start = 0; start < samples.length; start += width) {
      let peak = 0;
      for (let i = start; i < Math.min(start + width, samples.length); i++) peak = Math.max(peak, Math.abs(samples[i]));
      this.peaks.push(peak);
    }
  }

  schedule() {
    if (this.waitingLength === 0) return;
    const samples = joined(this.waiting, this.waitingLength);
    this.waiting = [];
    this.waitingLength = 0;
    const now = this.context.currentTime;
    if (this.nextTime < now + 0.005) {
      if (this.marks.length > 0) {
        this.underruns++;
        this.lead = Math.min(this.lead * 2, 1.5);
      }
      this.nextTime = now + this.lead;
    }
    this.start(samples, this.nextTime, 0);
    this.marks.push([this.nextTime, this.scheduled ?? 0]);
    this.scheduled = (this.scheduled ?? 0) + samples.length;
    this.nextTime += samples.length / RATE;
  }

  start(samples, time, offset) {
    const buffer = this.context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.onended = () => {
      this.sources.delete(source);
      if (this.sources.size === 0 && this.isComplete && this.waitingLength === 0) this.ended();
    };
    source.start(time, offset);
    this.sources.add(source);
  }

  /** Marks the end of the stream. */
  complete() {
    if (this.isPlaying && this.marks !== null) this.schedule();
    this.isComplete = true;
    if (this.sources.size === 0) this.ended();
    this.onchange();
  }

  ended() {
    this.isPlaying = false;
    this.offset = 0;
    this.onchange();
  }

  /** Current playback position in seconds. */
  get position() {
    if (!this.isPlaying) return this.offset;
    const now = this.context.currentTime;
    let place = 0;
    for (const [time, start] of this.marks) {
      if (time > now) break;
      place = start / RATE + (now - time);
    }
    return Math.min(place, this.seconds);
  }

  pause() {
    if (!this.isPlaying) return;
    this.offset = this.position;
    this.isPlaying = false;
    this.silence();
    this.onchange();
  }

  silence() {
    for (const source of this.sources) {
      source.onended = null;
      source.stop();
    }
    this.sources.clear();
  }

  play(from = this.offset) {
    takeTurn(this);
    audioContext();
    this.silence();
    const samples = this.samples();
    const first = Math.min(Math.max(0, Math.floor(from * RATE)), Math.max(0, samples.length - 1));
    this.waiting = [];
    this.waitingLength = 0;
    const now = this.context.currentTime + 0.02;
    this.marks = [[now, first]];
    this.scheduled = samples.length;
    this.nextTime = now + (samples.length - first) / RATE;
    this.isPlaying = true;
    if (samples.length > first) this.start(samples, now, first / RATE);
    this.onchange();
  }

  samples() {
    if (this.pieces.length > 1) this.pieces = [joined(this.pieces, this.length)];
    return this.pieces[0] ?? new Float32Array(0);
  }

  wav() {
    return wavOf(this.samples(), RATE);
  }
}

function joined(pieces, length) {
  const all = new Float32Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** Encodes a mono 16-bit WAV file. */
export function wavOf(samples, rate) {
  const bytes = new ArrayBuffer(44 + samples.length * 2);
  const view = new DataView(bytes);
  const text = (at, word) => [...word].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + samples.length * 2, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, samples.length * 2, true);
  for (let i = 0; i < samples.length; i++) {
    view.setInt16(44 + i * 2, Math.round(Math.max(-1, Math.min(1, samples[i])) * 32767), true);
  }
  return new Blob([bytes], { type: "audio/wav" });
}

/** Waveform with the playback position; a click or an arrow key moves it. */
export function waveform(sound) {
  const canvas = h("canvas", { class: "wave", role: "slider", tabindex: "0", "aria-label": t("position"), "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" });
  const seek = (share) => sound.isComplete && sound.play(Math.max(0, Math.min(0.999, share)) * sound.seconds);
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    seek((event.clientX - box.left) / box.width);
  });
  const KEYS = { ArrowRight: 0.05, ArrowUp: 0.05, ArrowLeft: -0.05, ArrowDown: -0.05, PageUp: 0.2, PageDown: -0.2, Home: -1, End: 1 };
  canvas.addEventListener("keydown", (event) => {
    const by = KEYS[event.key];
    if (by === undefined || sound.seconds === 0) return;
    event.preventDefault();
    seek(sound.position / sound.seconds + by);
  });
  const draw = () => {
    if (!canvas.isConnected && canvas.dataset.drawn) return;
    canvas.dataset.drawn = "1";
    const ratio = devicePixelRatio || 1;
    const box = canvas.getBoundingClientRect();
    if (canvas.width !== Math.round(box.width * ratio)) canvas.width = Math.round(box.width * ratio);
    if (canvas.height !== Math.round(box.height * ratio)) canvas.height = Math.round(box.height * ratio);
    const { width, height } = canvas;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    pen.clearRect(0, 0, width, height);
    const step = 4 * ratio;
    const bars = Math.floor(width / step);
    const count = sound.peaks.length;
    const span = sound.isComplete ? count : Math.max(count, 300);
    const heard = sound.seconds > 0 ? sound.position / (sound.isComplete ? sound.seconds : (span * 240) / RATE) : 0;
    for (let bar = 0; bar < bars; bar++) {
      const from = Math.floor((bar * span) / bars);
      const to = Math.max(from + 1, Math.floor(((bar + 1) * span) / bars));
      let peak = 0;
      for (let i = from; i < Math.min(to, count); i++) peak = Math.max(peak, sound.peaks[i]);
      const tall = Math.max(2 * ratio, Math.sqrt(peak) * height * 0.95);
      pen.fillStyle = style.getPropertyValue(from >= count ? "--line" : bar / bars < heard ? "--accent" : "--s6");
      pen.globalAlpha = from >= count || bar / bars < heard ? 1 : 0.45;
      pen.beginPath();
      pen.roundRect(bar * step, (height - tall) / 2, step * 0.6, tall, step * 0.3);
      pen.fill();
    }
    pen.globalAlpha = 1;
    canvas.setAttribute("aria-valuemax", sound.seconds.toFixed(1));
    canvas.setAttribute("aria-valuenow", sound.position.toFixed(1));
    canvas.setAttribute("aria-valuetext", `${sound.position.toFixed(1)} / ${sound.seconds.toFixed(1)} s`);
    if (sound.isPlaying || !sound.isComplete) requestAnimationFrame(draw);
  };
  requestAnimationFrame(draw);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
  canvas.redraw = () => requestAnimationFrame(draw);
  return canvas;
}

/** A play button; the audio is fetched on first use. */
export function playButton(load, label = t("play"), large = false) {
  const button = h("button", { type: "button", class: large ? "play large" : "play", "aria-label": label, title: label });
  const audio = new Audio();
  const player = { pause: () => audio.pause() };
  let url = null;
  const show = () => {
    const isOn = !audio.paused && !audio.ended;
    button.replaceChildren(icon(isOn ? "pause" : "play"));
    button.setAttribute("aria-pressed", String(isOn));
  };
  ["play", "pause", "ended"].forEach((event) => audio.addEventListener(event, show));
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    if (!audio.paused) return audio.pause();
    try {
      if (!url) {
        button.classList.add("loading");
        url = URL.createObjectURL(await load());
        audio.src = url;
      }
      takeTurn(player);
      await audio.play();
    } catch (error) {
      button.title = error.message;
      button.dispatchEvent(new CustomEvent("failed", { bubbles: true, detail: error }));
    } finally {
      button.classList.remove("loading");
    }
  });
  show();
  return button;
}
