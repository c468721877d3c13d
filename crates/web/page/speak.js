// Speak view: synthesis with streaming playback.

import { getBlob, getJson, hasToken, postJson, request, sendJson } from "./api.js";
import { confirmed, empty, failure, field, figures, h, icon, iconButton, keyedList, modelField, poll, replaceContent, save, segments, select } from "./dom.js";
import { languageName, number, seconds, t, when } from "./i18n.js";
import { LiveSound, audioContext, playButton, waveform } from "./sound.js";
import { chooseModel, currentModel, server, voiceNames } from "./server.js";

const MOST = 4096;
const FORMATS = ["wav", "mp3", "opus", "flac", "pcm"];
/** Sampling options: name, minimum, maximum, step. Empty fields use the model's default. */
const SAMPLING = [["temperature", 0.05, 2, 0.05], ["top_p", 0.05, 1, 0.05], ["repetition_penalty", 1, 20, 0.5]];
/** The draft survives a change of the view and a reload. */
const DRAFT = "myxtts.draft";

export async function mount(root) {
  let controller = null;
  let sound = null;
  const draft = JSON.parse(sessionStorage.getItem(DRAFT) ?? "{}");
  const keep = () => sessionStorage.setItem(DRAFT, JSON.stringify({ text: text.value, ...settings() }));

  const text = h("textarea", { dir: "auto", maxlength: MOST, placeholder: t("text_placeholder"), "aria-label": t("text"), rows: 5, spellcheck: "true" });
  text.value = draft.text ?? "";
  const count = h("span", { class: "small muted" });
  const model = h("div", { class: "grow", hidden: true });
  const voice = select([["default", t("voice_default")]], "default");
  const language = select([["", t("language_auto")]], "");
  const speed = h("input", { type: "range", min: 0.25, max: 4, step: 0.05, value: draft.speed ?? 1 });
  const seed = h("input", { type: "number", min: 0, step: 1, value: draft.seed ?? 0, inputmode: "numeric" });
  const sampling = Object.fromEntries(SAMPLING.map(([name, min, max, step]) =>
    [name, h("input", { type: "number", min, max, step, value: draft[name] ?? "", placeholder: t("default_placeholder"), inputmode: "decimal" })]));
  const go = h("button", { class: "primary", type: "submit" }, icon("speak"), t("speak_button"));
  const stop = h("button", { type: "button", hidden: true, onclick: () => { controller?.abort(); sound?.pause(); } }, icon("stop"), t("stop"));
  const result = h("section", { class: "card", hidden: true, "aria-label": t("result"), "aria-live": "polite" });
  const past = h("section", { class: "card", "aria-label": t("history") });
  const entries = keyedList(historyItem);
  let shown = "";

  const settings = () => ({
    model: currentModel()?.name ?? "tts-1",
    voice: voice.value,
    language: language.value,
    speed: Number(speed.value),
    seed: Math.max(0, Math.floor(Number(seed.value) || 0)),
    ...Object.fromEntries(SAMPLING.flatMap(([name]) => (sampling[name].value === "" ? [] : [[name, Number(sampling[name].value)]]))),
  });
  const counted = () => (count.textContent = t("characters", { n: number([...text.value].length), most: number(MOST) }));
  text.addEventListener("input", () => { counted(); keep(); });
  counted();

  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); speak(); }, onchange: keep },
    text,
    h("div", { class: "row" },
      model,
      field(t("voice"), voice),
      field(t("language"), language),
      h("div", { class: "row center end" }, count, stop, go)),
    h("details", {},
      h("summary", {}, t("settings")),
      h("div", { class: "row" },
        field(t("speed"), speed, { value: (x) => `${number(Number(x), 2)}×` }),
        field(t("seed"), seed)),
      h("div", { class: "row" }, SAMPLING.map(([name]) => field(t(name), sampling[name]))),
      h("p", { class: "small muted" }, t("seed_hint"))));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  root.append(h("div", { class: "page" },
    h("div", { class: "head" }, h("h1", {}, t("speak")), h("p", { class: "lead" }, t("speak_lead"))), form, result, past));

  const fillVoices = async () => {
    const names = await voiceNames().catch(() => []);
    voice.replaceChildren(...(names.length ? names : ["default"]).map((name) => h("option", { value: name }, name === "default" ? t("voice_default") : name)));
    if (names.includes(draft.voice)) voice.value = draft.voice;
  };
  let filled = "";
  const fill = (state) => {
    const models = state.models ?? [];
    const current = currentModel();
    const tag = JSON.stringify([models.map((one) => one.name), current?.name]);
    if (tag !== filled) {
      filled = tag;
      model.replaceChildren(...[modelField(models, current?.name, chooseModel)].filter(Boolean));
      model.hidden = models.length < 2;
      fillVoices();
    }
    const languages = current?.languages ?? [];
    const chosen = language.value || draft.language;
    language.replaceChildren(h("option", { value: "" }, t("language_auto")), ...languages.map((code) => h("option", { value: code }, languageName(code))));
    language.value = languages.includes(chosen) ? chosen : "";
  };
  fill(server.state ?? {});
  const forget = server.onchange(fill);
  // Other browsers may add entries too.
  const stopHistory = poll(showHistory, 5000);

  async function speak() {
    if (controller) return;
    const requested = { text: text.value, ...settings() };
    if (!requested.text.trim()) return text.focus();
    audioContext();
    controller = new AbortController();
    go.disabled = true;
    stop.hidden = false;
    result.hidden = false;
    // The values change many times per second: screen readers read them once they are final.
    result.setAttribute("aria-busy", "true");
    sound?.pause();
    sound = new LiveSound();
    const mine = sound;
    const view = resultView(requested, mine);
    result.replaceChildren(...view.parts);
    const begun = performance.now();
    let first = null;
    try {
      const body = bodyOf(requested, "pcm");
      const response = await sendJson("POST", "/v1/audio/speech", body, { signal: controller.signal });
      const reader = response.body.getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        first ??= performance.now() - begun;
        mine.add(value);
        view.figures({ first, elapsed: performance.now() - begun });
      }
      mine.complete();
      const elapsed = performance.now() - begun;
      view.figures({ first, elapsed, isDone: true });
      await remember(requested, mine, first, elapsed).catch(() => {});
      showHistory();
    } catch (error) {
      mine.complete();
      if (error.name !== "AbortError") view.fail(error);
      else if (mine.length === 0) result.hidden = true;
    } finally {
      controller = null;
      result.removeAttribute("aria-busy");
      go.disabled = false;
      stop.hidden = true;
    }
  }

  async function showHistory() {
    try {
      const { items } = await getJson("/studio/history");
      const tag = JSON.stringify(items);
      if (tag === shown) return;
      shown = tag;
      replaceContent(past, h("h2", {}, t("history")), items.length
        ? h("ul", { class: "list" }, entries(items))
        : empty(t("history_empty")));
    } catch (error) {
      shown = "";
      past.replaceChildren(h("h2", {}, t("history")), failure(error));
    }
  }

  function historyItem(item) {
    const said = item.said;
    const reuse = () => {
      text.value = said.text;
      counted();
      if ([...voice.options].some((option) => option.value === said.voice)) voice.value = said.voice;
      language.value = said.language ?? "";
      speed.value = said.speed;
      seed.value = said.seed;
      SAMPLING.forEach(([name]) => (sampling[name].value = said[name] ?? ""));
      [speed, seed].forEach((control) => control.dispatchEvent(new Event("input")));
      keep();
      text.focus();
      scrollTo({ top: 0, behavior: "smooth" });
    };
    const load = () => getBlob(`/studio/history/${item.id}/sound`);
    return h("li", {},
      playButton(load, t("listen_to", { name: said.text.slice(0, 60) })),
      h("div", { class: "body" },
        h("div", { class: "title clamp" }, h("bdi", {}, said.text)),
        h("div", { class: "small muted" }, [when(item.time), said.voice === "default" ? t("voice_default") : said.voice, item.seconds && seconds(item.seconds), item.rtf && `RTF ${number(item.rtf, 2)}`]
          .filter(Boolean).flatMap((part, i) => [i ? " · " : "", h("bdi", {}, part)]))),
      iconButton("again", t("use_again"), reuse),
      iconButton("download", t("download"), async () => save(await load(), `${item.id}.wav`)),
      iconButton("trash", t("remove"), async () => {
        if (await confirmed(t("remove_question"), t("remove"))) {
          await sendJson("DELETE", `/studio/history/${item.id}`);
          showHistory();
        }
      }, "danger"));
  }

  return () => {
    forget();
    stopHistory();
    controller?.abort();
    sound?.pause();
  };
}

/** Request body of OpenAI's API. */
function bodyOf(requested, format) {
  const body = { model: requested.model, input: requested.text, voice: requested.voice, response_format: format };
  if (requested.language) body.language = requested.language;
  if (requested.speed !== 1) body.speed = requested.speed;
  if (requested.seed) body.seed = requested.seed;
  for (const [name] of SAMPLING) if (requested[name] !== undefined) body[name] = requested[name];
  return body;
}

function resultView(requested, sound) {
  const wave = waveform(sound);
  const button = h("button", { type: "button", class: "play large", onclick: () => (sound.isPlaying ? sound.pause() : sound.play()) });
  const numbers = h("div", { id: "figures" });
  const errorArea = h("div");
  const format = select(FORMATS.map((name) => [name, name.toUpperCase()]), "wav", { "aria-label": t("format") });
  const download = h("button", { type: "button", disabled: true }, icon("download"), t("download"));
  download.addEventListener("click", async () => {
    const blob = format.value === "wav" ? sound.wav() : await (await sendJson("POST", "/v1/audio/speech", bodyOf(requested, format.value))).blob();
    save(blob, `speech.${format.value}`);
  });
  const refresh = () => {
    button.replaceChildren(icon(sound.isPlaying ? "pause" : "play"));
    button.setAttribute("aria-label", sound.isPlaying ? t("pause") : t("play"));
    download.disabled = !sound.isComplete || sound.length === 0;
    wave.redraw();
  };
  sound.onchange = refresh;
  refresh();
  const show = ({ first, elapsed, isDone }) => {
    const made = sound.seconds;
    const rtf = made > 0 ? elapsed / 1000 / made : null;
    numbers.replaceChildren(figures([
      [t("first_sound"), first === null || first === undefined ? "…" : t("milliseconds", { n: number(first) })],
      [t("rtf"), rtf === null ? "…" : number(rtf, 2)],
      [t("length"), seconds(made)],
      sound.underruns > 0 && [t("underruns"), number(sound.underruns)],
    ]));
    // For automated tests.
    Object.assign(numbers.dataset, { first: first ?? "", rtf: rtf ?? "", seconds: made, done: isDone ? "yes" : "no" });
  };
  show({ first: null, elapsed: 0 });
  return {
    parts: [
      h("div", { class: "player" }, button, wave),
      h("div", { class: "row center" }, numbers, h("div", { class: "row center end" }, h("div", {}, format), download)),
      errorArea,
      snippets(requested),
    ],
    figures: show,
    fail: (error) => errorArea.replaceChildren(failure(error)),
  };
}

function snippets(requested) {
  const code = h("pre", { class: "code", tabindex: "0" });
  const body = bodyOf(requested, "wav");
  const base = location.origin;
  const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const key = hasToken() ? " -H \"Authorization: Bearer $MYXTTS_TOKEN\"" : "";
  const { model, input, voice, response_format, speed, ...ours } = body;
  const more = Object.keys(ours).length ? `\n    extra_body=${JSON.stringify(ours)},` : "";
  const python = JSON.stringify;
  const texts = {
    curl: `curl ${base}/v1/audio/speech${key} -H 'Content-Type: application/json' \\\n  -d ${shell(JSON.stringify(body))} -o speech.wav`,
    python: `${hasToken() ? "import os\n" : ""}from openai import OpenAI

client = OpenAI(base_url="${base}/v1", api_key=${hasToken() ? 'os.environ["MYXTTS_TOKEN"]' : '"none"'})
with client.audio.speech.with_streaming_response.create(
    model=${python(model)}, voice=${python(voice)}, response_format="wav",${speed ? ` speed=${speed},` : ""}
    input=${python(input)},${more}
) as speech:
    speech.stream_to_file("speech.wav")`,
  };
  let chosen = "curl";
  const show = (name) => {
    chosen = name;
    code.textContent = texts[name];
  };
  show("curl");
  const copy = iconButton("copy", t("copy"), async () => {
    await navigator.clipboard?.writeText(texts[chosen]);
    copy.title = t("copied");
  });
  return h("details", {}, h("summary", {}, t("as_code")),
    h("div", { class: "stack" },
      h("div", { class: "row center" }, segments(t("as_code"), [["curl", "curl"], ["python", "Python"]], "curl", show), copy),
      code));
}

/** Stores the result on the server, so that it is available later and in other browsers. */
async function remember(requested, sound, first, elapsed) {
  const made = sound.seconds;
  if (!made) return;
  const { id } = await postJson("/studio/history", { said: requested, seconds: made, first_ms: first, rtf: elapsed / 1000 / made });
  await request(`/studio/history/${id}/sound`, { method: "PUT", headers: { "Content-Type": "audio/wav" }, body: sound.wav() });
}
