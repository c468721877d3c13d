// One run: samples first, then curves. Everything is read from its folder, so a reload loses nothing.

import { getBlob, getJson, postJson } from "./api.js";
import { confirmed, empty, failure, figures, follow, h, icon, iconButton, notice, poll, replaceContent, select } from "./dom.js";
import { compact, named, number, percent, seconds, t, when } from "./i18n.js";
import { lineChart } from "./charts.js";
import { picture } from "./data.js";
import { playButton } from "./sound.js";
import { machineCard, progressBar, stateTag } from "./training.js";

const FEW = 7;

export async function mount(root, name) {
  const place = `/studio/runs/${encodeURIComponent(name)}`;
  let seen = "";
  let sampleTag = "";
  let last = null;
  const stops = [];

  const state = h("span");
  const stop = h("button", { type: "button", hidden: true, onclick: () => ask("stop", t("stop_question")) }, icon("stop"), t("stop"));
  const resume = h("button", { type: "button", hidden: true, onclick: () => ask("resume") }, icon("again"), t("resume"));
  const line = h("section", { class: "card", "aria-label": t("progress") });
  const samplesCard = h("section", { class: "card", "aria-label": t("samples") }, h("h2", {}, t("samples")), empty(t("no_samples")));
  const messagesCard = h("section", { class: "card", hidden: true, "aria-label": t("messages") });
  const curves = h("section", { class: "card", "aria-label": t("curves") });
  const device = h("section", { class: "card", "aria-label": t("device_graphs") });
  const machine = h("section", { class: "card", "aria-label": t("machine") });
  const diagnosis = h("section", { class: "card", "aria-label": t("diagnosis") });
  const rest = h("section", { class: "card" });

  root.append(h("div", { class: "page" },
    h("div", { class: "head" },
      h("div", { class: "row center" }, iconButton("back", t("back"), () => (location.hash = "#/training")), h("h1", {}, h("bdi", {}, name)), state),
      h("div", { class: "row center" }, stop, resume)),
    line, samplesCard, messagesCard, curves, device, machine, diagnosis, rest));

  async function ask(what, question) {
    if (question && !await confirmed(question, t("stop"))) return;
    stop.disabled = resume.disabled = true;
    try {
      await postJson(`${place}/${what}`, {});
      if (what === "stop") notice(t("stopping"));
    } catch (error) {
      notice(error.message);
    } finally {
      stop.disabled = resume.disabled = false;
      look();
    }
  }

  async function look() {
    try {
      const found = await getJson(`${place}?seen=${encodeURIComponent(seen)}`);
      if (found.same) return;
      seen = found.seen;
      last = found;
      show(found);
    } catch (error) {
      line.replaceChildren(failure(error));
    }
  }

  function show(found) {
    state.replaceChildren(stateTag(found.state));
    stop.hidden = found.state !== "running";
    resume.hidden = found.state === "running" || found.state === "finished";
    showLine(found);
    const tag = JSON.stringify(found.samples.map((sample) => [sample.file, sample.time]));
    if (tag !== sampleTag) {
      sampleTag = tag;
      showSamples(found);
    }
    showMessages(found);
    showCurves(found);
    showDevice(found);
    showRest(found);
  }

  function showLine(found) {
    const { now, step, steps, stage } = found;
    const left = now.steps_per_second && steps ? (steps - step) / now.steps_per_second : null;
    const isOn = found.state === "running";
    line.replaceChildren(
      h("div", { class: "card-head" },
        h("h2", {}, stage ? t("stage_at", { stage: t(`stage_${stage}`), step: number(step), steps: number(steps) }) : t("preparing")),
        h("span", { class: "muted small" }, t("began_at", { when: when(found.began) }))),
      progressBar(step, steps),
      found.why ? h("pre", { class: "note bad log" }, found.why) : "",
      now.unreadable ? h("p", { class: "note bad" }, now.unreadable) : "",
      figures([
        [t("loss"), compact(found.loss)],
        isOn && [t("clips_per_second"), number(now.clips_per_second, 1)],
        isOn && now.busy !== null && [t("gpu_busy"), percent(now.busy)],
        isOn && now.wait !== null && [t("waiting"), percent(now.wait)],
        isOn && left !== null && [t("time_left"), seconds(left)],
        ...found.parts.map((part) => part.chosen && [t("best_of", { stage: t(`stage_${part.stage}`) }), t("step_n", { n: number(part.chosen) })]),
      ]));
    // For automated tests.
    Object.assign(line.dataset, { state: found.state, stage: stage ?? "", step: step ?? 0 });
  }

  function showSamples(found) {
    const sentences = new Map();
    for (const sample of found.samples) {
      if (!sentences.has(sample.sentence)) sentences.set(sample.sentence, []);
      sentences.get(sample.sentence).unshift(sample);
    }
    samplesCard.replaceChildren(h("div", { class: "card-head" }, h("h2", {}, t("samples")), h("span", { class: "muted small" }, t("samples_lead"))),
      ...(sentences.size ? [...sentences].map(([sentence, samples]) => sentenceRow(sentence, samples)) : [empty(t("no_samples"))]));
  }

  function sentenceRow(sentence, samples) {
    const original = `${place}/recordings/${encodeURIComponent(sentence)}`;
    const card = (kind, title, about, sound, mel) => h("article", { class: `sample ${kind}` },
      h("header", {}, playButton(() => getBlob(sound), t("listen_to", { name: title })), h("div", { class: "body" }, h("h3", {}, title), h("div", { class: "small muted" }, about))),
      picture(mel, t("mel_of", { name: title })));
    const grid = h("div", { class: "listen" }, card("original", t("recording"), t("held_out"), original, `${original}/mel`));
    const add = (list) => grid.append(...list.map((sample) => {
      const file = `${place}/samples/${encodeURIComponent(sample.file)}`;
      const title = sample.stage === "model" ? t("finished_model") : t("stage_step", { stage: t(`stage_${sample.stage}`), step: number(sample.step) });
      const figure = (key, value) => Number.isFinite(value) && t(key, { n: compact(value) });
      const about = [seconds(sample.seconds), sample.wer !== undefined && `WER ${percent(sample.wer)}`,
        figure("sample_distortion", sample.distortion), figure("sample_similarity", sample.similarity)].filter(Boolean).join(" · ");
      return card("", title, about, file, file.replace(/\.wav$/, ".png"));
    }));
    add(samples.slice(0, FEW));
    const row = h("div", { class: "sentence" }, h("p", { dir: "auto" }, samples[0].text), grid);
    if (samples.length > FEW) {
      const all = h("button", { type: "button", class: "quiet", onclick: () => { add(samples.slice(FEW)); all.remove(); } }, t("show_all", { n: number(samples.length) }));
      row.append(all);
    }
    return row;
  }

  function showMessages(found) {
    const shown = found.messages.slice(-30).reverse();
    messagesCard.hidden = shown.length === 0;
    messagesCard.replaceChildren(h("h2", {}, t("messages")), h("ul", { class: "advice" }, shown.map((message) =>
      h("li", { dir: "auto" }, h("span", { class: message.kind === "advice" || message.kind === "note" ? "tag" : "tag warn" }, named("message", message.kind)), " ",
        message.advice ?? message.note ?? message.fault ?? (message.loss !== undefined ? `${t("loss")} ${compact(message.loss)}` : ""), " ",
        message.step ? h("span", { class: "muted small" }, t("step_n", { n: number(message.step) })) : ""))));
  }

  function showCurves(found) {
    const charts = [];
    for (const part of [...found.parts].reverse()) {
      const stage = t(`stage_${part.stage}`);
      const title = (what) => `${stage}: ${what}`;
      const series = [{ name: t("loss"), x: part.step, y: part.curves.loss ?? [] }];
      charts.push([title(t("loss")), lineChart(series, { title: title(t("loss")), wide: true })]);
      const held = part.validations.filter((one) => Number.isFinite(one.score));
      if (held.length > 1) {
        charts.push([title(t("held_out_score")), lineChart([{ name: t("held_out_score"), x: held.map((one) => one.step), y: held.map((one) => one.score), dots: true, colour: 1 }], { title: title(t("held_out_score")), wide: true })]);
      }
      const parts = Object.keys(part.curves).filter((key) => key.startsWith("numbers."));
      if (parts.length) {
        charts.push([title(t("parts_of_loss")), lineChart(parts.slice(0, 6).map((key) => ({ name: named("number", key.slice(8)), x: part.step, y: part.curves[key] })), { title: title(t("parts_of_loss")), wide: true })]);
      }
      charts.push([title(t("learning_rate")), lineChart([{ name: t("learning_rate"), x: part.step, y: part.curves.rate ?? [], colour: 2 }], { title: title(t("learning_rate")), height: 150, zero: true, wide: true })]);
    }
    replaceContent(curves, h("h2", {}, t("curves")), charts.length
      ? h("div", { class: "grid wide" }, charts.map(([name_, chart]) => h("div", { class: "stack" }, h("h3", {}, name_), chart)))
      : empty(t("nothing_yet")));
    curves.dataset.points = found.parts.reduce((sum, part) => sum + part.step.length, 0);
  }

  function showDevice(found) {
    const begin = found.began ?? 0;
    const x = found.parts.flatMap((part) => part.time.map((time) => (time - begin) / 60));
    const joined = (key) => found.parts.flatMap((part) => part.curves[key] ?? part.step.map(() => null));
    const minutes = (value) => t("minutes", { n: compact(value) });
    replaceContent(device, h("h2", {}, t("device_graphs")), x.length
      ? h("div", { class: "grid" },
        h("div", { class: "stack" }, h("h3", {}, t("busy_wait")), lineChart([
          { name: t("step_on_gpu"), x, y: joined("busy") },
          { name: t("waiting"), x, y: joined("wait"), colour: 1 },
        ], { title: t("busy_wait"), zero: true, max: 1, height: 160, wide: true, formatX: minutes, formatY: (value) => percent(value) })),
        h("div", { class: "stack" }, h("h3", {}, t("clips_per_second")), lineChart([{ name: t("clips_per_second"), x, y: joined("clips_per_second"), colour: 4 }],
          { title: t("clips_per_second"), zero: true, height: 160, wide: true, formatX: minutes })))
      : empty(t("nothing_yet")));
  }

  let isRestShown = false;
  function showRest(found) {
    if (isRestShown) return;
    isRestShown = true;
    const log = h("pre", { class: "code log" });
    rest.append(
      h("details", { ontoggle: async (event) => { if (event.target.open) log.textContent = (await getJson(`${place}/log`)).log || t("no_log"); } }, h("summary", {}, t("log")), log),
      h("details", {}, h("summary", {}, t("plan")), h("pre", { class: "code log" }, JSON.stringify(found.plan, null, 2))),
      h("details", {}, h("summary", {}, t("stages")), found.parts.map((part) => h("div", {}, h("h3", {}, t(`stage_${part.stage}`)),
        h("ul", { class: "advice small muted" }, (part.described ?? []).map((text) => h("li", { dir: "auto" }, text)))))));
  }

  stops.push(poll(look, 1500), machineCard(machine), showDiagnosis(diagnosis, place, () => last?.stage));
  return () => stops.forEach((one) => one());
}

/** Diagnosis: the bottleneck of this run. */
function showDiagnosis(card, place, currentStage) {
  const stage = select([["", t("current_stage")], ...["dvae", "gpt", "decoder"].map((one) => [one, t(`stage_${one}`)])], "", { "aria-label": t("stage") });
  const start = h("button", { type: "button", onclick: async () => {
    try {
      await postJson(`${place}/diagnosis`, { stage: stage.value || currentStage() || "gpt" });
      again();
    } catch (error) {
      inside.replaceChildren(failure(error));
    }
  } }, t("diagnose"));
  const inside = h("div", { class: "stack" });
  card.append(h("div", { class: "card-head" }, h("h2", {}, t("diagnosis")), h("div", { class: "row center" }, h("div", {}, stage), start)), inside);
  const [again, stop] = follow(() => getJson(`${place}/diagnosis`), (found, error) => {
    start.disabled = found?.state === "running";
    inside.replaceChildren(...(error ? [failure(error)] : diagnosisOf(found)));
  }, 1500);
  return stop;
}

function diagnosisOf({ state, log, report }) {
  if (state === "none") return [h("p", { class: "muted" }, t("diagnosis_lead"))];
  if (state === "running") return [h("p", {}, h("span", { class: "tag live" }, t("diagnosing")))];
  if (state === "failed") return [h("pre", { class: "note bad log" }, log)];
  const findings = report.findings ?? [];
  const rows = Object.entries(report.seconds ?? {});
  return [
    h("p", {}, h("span", { class: report.culprit === "healthy" ? "tag good" : "tag warn" }, named("cause", report.culprit)), " ", h("span", { class: "muted small" }, `${t(`stage_${report.stage}`)} · ${report.preset} · ${report.device}`)),
    findings.length ? h("ul", { class: "advice" }, findings.map((finding) => h("li", { dir: "auto" }, finding.evidence, h("div", { class: "muted" }, finding.recommendation)))) : "",
    rows.length ? h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("part_of_step")), ["mean", "median", "p95"].map((text) => h("th", { scope: "col", class: "number" }, named("statistic", text))))),
      h("tbody", {}, rows.map(([part, spread]) => h("tr", {}, h("td", {}, named("step_part", part)), [spread.mean, spread.p50, spread.p95].map((value) =>
        h("td", { class: "number" }, value === undefined || value === null ? "–" : t("milliseconds", { n: number(value * 1000, 2) })))))))) : "",
  ];
}
