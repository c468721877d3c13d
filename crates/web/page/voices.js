// Voices view: add from a file or the microphone, listen, remove.

import { getJson, request, sendJson } from "./api.js";
import { confirmed, empty, failure, field, figures, h, icon, iconButton, keyedList, modelField, notice, poll, replaceContent } from "./dom.js";
import { number, percent, seconds, t } from "./i18n.js";
import { chooseModel, currentModel, ofModel, server } from "./server.js";
import { playButton, wavOf } from "./sound.js";

const LONGEST_RECORDING = 60;

export async function mount(root) {
  let recorder = null;
  let recorded = null;

  const model = h("div", { class: "grow", hidden: true });
  const list = h("section", { class: "card", "aria-label": t("voices") });
  const rows = keyedList(item);
  let shown = "";
  const name = h("input", { required: true, maxlength: 60, autocomplete: "off", placeholder: t("name_placeholder"), dir: "auto" });
  const file = h("input", { type: "file", accept: "audio/*,.wav,.flac,.mp3,.ogg,.opus,.m4a" });
  const record = h("button", { type: "button", onclick: toggle }, icon("voices"), t("record"));
  const heard = h("div", { class: "row center", hidden: true });
  const outcome = h("div", { "aria-live": "polite" });
  const add = h("button", { class: "primary", type: "submit" }, icon("plus"), t("add_voice"));
  file.addEventListener("change", () => {
    recorded = null;
    heard.hidden = true;
  });

  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); upload(); } },
    h("h2", {}, t("add_voice_title")),
    h("p", { class: "muted" }, t("add_voice_lead")),
    h("div", { class: "row" }, model, field(t("name"), name), field(t("recording"), file), record, add),
    heard, outcome);
  root.append(h("div", { class: "page" },
    h("div", { class: "head" }, h("h1", {}, t("voices")), h("p", { class: "lead" }, t("voices_lead"))), form, list));
  let filled = "";
  const fill = (state) => {
    const models = state.models ?? [];
    const tag = JSON.stringify([models.map((one) => one.name), currentModel()?.name]);
    if (tag === filled) return;
    filled = tag;
    model.replaceChildren(...[modelField(models, currentModel()?.name, chooseModel)].filter(Boolean));
    model.hidden = models.length < 2;
    show();
  };
  fill(server.state ?? {});
  const forget = server.onchange(fill);
  // Other browsers may add and remove voices too.
  const stopShowing = poll(show, 5000);

  async function show() {
    try {
      const { voices } = await getJson(ofModel("/studio/voices"));
      // A voice sounds different with another model, so it gets another row.
      voices.forEach((voice) => (voice.model = currentModel()?.name));
      const tag = JSON.stringify(voices);
      if (tag === shown) return;
      shown = tag;
      replaceContent(list, h("h2", {}, t("all_voices")), voices.length
        ? h("ul", { class: "list" }, rows(voices))
        : empty(t("no_voices")));
    } catch (error) {
      shown = "";
      list.replaceChildren(h("h2", {}, t("all_voices")), failure(error));
    }
  }

  function item(voice) {
    const load = async () => {
      const languages = currentModel()?.languages ?? [];
      const isPersian = document.documentElement.lang === "fa" && languages.includes("fa");
      const input = isPersian || !languages.includes("en") && languages.includes("fa") ? "سلام، این صدای من است." : "Hello, this is my voice.";
      const body = { model: currentModel()?.name ?? "tts-1", input, voice: voice.name, response_format: "wav" };
      return (await sendJson("POST", "/v1/audio/speech", body)).blob();
    };
    return h("li", { data: { voice: voice.name } },
      playButton(load, t("listen_to", { name: voice.name })),
      h("div", { class: "body" },
        h("div", { class: "title", dir: "auto" }, voice.name === "default" ? t("voice_default") : voice.name),
        h("div", { class: "small muted" }, voice.is_own ? [t("own_voice"), voice.seconds && seconds(voice.seconds)].filter(Boolean).join(" · ") : t("built_in_voice")),
        voice.report ? report(voice.report, voice.report.advice.map((advice) => advice.text)) : null),
      voice.is_own && iconButton("trash", t("remove"), async () => {
        if (!await confirmed(t("remove_voice_question", { name: voice.name }), t("remove"))) return;
        try {
          await request(ofModel(`/v1/audio/voices/${encodeURIComponent(voice.name)}`), { method: "DELETE" });
        } catch (error) {
          notice(error.message);
        }
        show();
      }, "danger"));
  }

  async function upload() {
    const sample = recorded ?? file.files[0];
    if (!sample) {
      outcome.replaceChildren(failure(new Error(t("no_recording"))));
      return;
    }
    add.disabled = true;
    add.setAttribute("aria-busy", "true");
    outcome.replaceChildren(h("p", { class: "muted" }, t("encoding_voice")));
    try {
      const body = new FormData();
      if (currentModel()) body.append("model", currentModel().name);
      body.append("name", name.value.trim());
      body.append("audio_sample", sample, recorded ? "microphone.wav" : sample.name);
      const added = await (await request("/v1/audio/voices", { method: "POST", body })).json();
      const details = (await getJson(ofModel("/studio/voices"))).voices.find((voice) => voice.name === added.name);
      outcome.replaceChildren(h("div", { class: "note good" }, t("voice_added", { name: added.name, seconds: seconds(added.seconds) })),
        details?.report ? report(details.report, added.advice, true) : "");
      form.reset();
      recorded = null;
      heard.hidden = true;
      show();
    } catch (error) {
      outcome.replaceChildren(failure(error));
    } finally {
      add.disabled = false;
      add.removeAttribute("aria-busy");
    }
  }

  async function toggle() {
    if (recorder) return finish();
    try {
      if (!navigator.mediaDevices) throw new Error(t("needs_https"));
      const stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
      const context = new AudioContext();
      await context.audioWorklet.addModule("/page/recorder-worklet.js");
      const node = new AudioWorkletNode(context, "myxtts-recorder");
      const pieces = [];
      node.port.onmessage = ({ data }) => {
        pieces.push(data);
        const length = pieces.length * data.length / context.sampleRate;
        record.lastChild.textContent = t("stop_recording", { n: number(length, 1) });
        if (length >= LONGEST_RECORDING) finish();
      };
      context.createMediaStreamSource(stream).connect(node);
      recorder = { stream, context, pieces };
      record.replaceChildren(icon("stop"), t("stop_recording", { n: number(0, 1) }));
      record.classList.add("danger");
    } catch (error) {
      outcome.replaceChildren(failure(new Error(t("no_microphone", { why: error.message }))));
    }
  }

  function finish() {
    if (!recorder) return;
    const { stream, context, pieces } = recorder;
    recorder = null;
    stream.getTracks().forEach((track) => track.stop());
    const samples = new Float32Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      samples.set(piece, at);
      at += piece.length;
    }
    const blob = wavOf(samples, context.sampleRate);
    const length = samples.length / context.sampleRate;
    context.close();
    recorded = blob;
    record.replaceChildren(icon("voices"), t("record"));
    record.classList.remove("danger");
    heard.hidden = false;
    heard.replaceChildren(playButton(async () => blob), h("span", { class: "muted" }, t("recorded", { seconds: seconds(length) })));
  }

  return () => {
    forget();
    stopShowing();
    finish();
  };
}

/** Quality of the recordings of a voice. */
function report(found, advice, isOpen = false) {
  const first = found.references[0] ?? {};
  return h("details", { open: isOpen },
    h("summary", { class: "small" }, t("quality"), " ", h("span", { class: advice.length ? "tag warn" : "tag good" }, advice.length ? t("hints", { n: number(advice.length) }) : t("good"))),
    h("div", { class: "stack" },
      figures([
        [t("length"), seconds(found.seconds)],
        first.signal_to_noise_db !== undefined && [t("signal_to_noise"), t("decibels", { n: number(first.signal_to_noise_db) })],
        first.clipped !== undefined && [t("clipped"), percent(first.clipped, 2)],
        first.sample_rate && [t("sample_rate"), t("kilohertz", { n: number(first.sample_rate / 1000, 1) })],
        found.least_similarity !== null && found.least_similarity !== undefined && [t("similarity"), percent(found.least_similarity)],
      ]),
      advice.length > 0 && h("ul", { class: "advice small" }, advice.map((text) => h("li", { dir: "auto" }, text)))));
}
