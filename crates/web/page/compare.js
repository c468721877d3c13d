// Compares runs: their samples of the same sentences, then their curves on one axis.

import { getBlob, getJson } from "./api.js";
import { empty, failure, h, iconButton, poll, replaceContent, segments } from "./dom.js";
import { compact, number, seconds, t, when } from "./i18n.js";
import { lineChart } from "./charts.js";
import { picture } from "./data.js";
import { playButton } from "./sound.js";
import { stateTag } from "./training.js";

export async function mount(root, names) {
  const body = h("div", { class: "page" });
  let stage = null;
  let shown = "";
  let sampleTag = "";
  let sampleRows = null;
  root.append(h("div", { class: "page" },
    h("div", { class: "head" }, h("div", { class: "row center" }, iconButton("back", t("back"), () => (location.hash = "#/training")), h("h1", {}, t("compare_title")))), body));
  return poll(async () => {
    try {
      const runs = await Promise.all(names.map((name) => getJson(`/studio/runs/${encodeURIComponent(name)}`)));
      const tag = JSON.stringify(runs.map((run) => run.seen));
      if (tag === shown) return;
      shown = tag;
      show(runs);
    } catch (error) {
      shown = "";
      body.replaceChildren(failure(error));
    }
  }, 4000);

  function show(runs) {
    const stages = [...new Set(runs.flatMap((run) => run.parts.map((part) => part.stage)))];
    const common = stages.filter((one) => runs.every((run) => run.parts.some((part) => part.stage === one)));
    stage = stages.includes(stage) ? stage : common.at(-1) ?? stages.at(-1);
    const tag = JSON.stringify(runs.map((run) => run.samples));
    // Unchanged samples stay, and playback continues.
    if (tag !== sampleTag) sampleRows = samples(runs);
    sampleTag = tag;
    replaceContent(body, table(runs), sampleRows, curves(runs, stages));
  }

  function table(runs) {
    const score = (run) => {
      const part = run.parts.find((one) => one.stage === "gpt") ?? run.parts.at(-1);
      const scores = (part?.validations ?? []).map((one) => one.score).filter(Number.isFinite);
      return scores.length ? Math.min(...scores) : null;
    };
    return h("section", { class: "card" }, h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {}, [t("name"), t("state"), t("preset"), t("stage"), t("step"), t("loss"), t("held_out_score"), t("began")].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, runs.map((run, i) => h("tr", {},
        h("td", {}, h("span", { class: `dot d${(i % 6) + 1}` }), " ", h("a", { href: `#/training/run/${encodeURIComponent(run.name)}`, data: { focus: `run ${run.name}` } }, h("bdi", {}, run.name))),
        h("td", {}, stateTag(run.state)),
        h("td", {}, run.plan?.model?.preset ?? "–"),
        h("td", {}, run.stage ? t(`stage_${run.stage}`) : "–"),
        h("td", { class: "nowrap" }, `${number(run.step)} / ${number(run.steps)}`),
        h("td", {}, compact(run.loss)), h("td", {}, compact(score(run))), h("td", { class: "nowrap" }, when(run.began))))))));
  }

  function samples(runs) {
    const sentences = new Map();
    for (const run of runs) {
      for (const sample of run.samples) {
        if (!sentences.has(sample.sentence)) sentences.set(sample.sentence, { text: sample.text, latest: new Map(), first: run.name });
        sentences.get(sample.sentence).latest.set(run.name, sample);
      }
    }
    const all = [...sentences].filter(([, entry]) => entry.latest.size > 0).sort((a, b) => b[1].latest.size - a[1].latest.size).slice(0, 8);
    const card = (kind, title, about, sound, mel) => h("article", { class: `sample ${kind}` },
      h("header", {}, playButton(() => getBlob(sound), t("listen_to", { name: title })), h("div", { class: "body" }, h("h3", {}, title), h("div", { class: "small muted" }, about))),
      picture(mel, t("mel_of", { name: title })));
    return h("section", { class: "card" }, h("h2", {}, t("samples")), all.length ? all.map(([sentence, entry]) => {
      const original = `/studio/runs/${encodeURIComponent(entry.first)}/recordings/${encodeURIComponent(sentence)}`;
      return h("div", { class: "sentence" }, h("p", { dir: "auto" }, entry.text), h("div", { class: "listen" },
        card("original", t("recording"), t("held_out"), original, `${original}/mel`),
        [...entry.latest].map(([name, sample]) => {
          const file = `/studio/runs/${encodeURIComponent(name)}/samples/${encodeURIComponent(sample.file)}`;
          const about = sample.stage === "model" ? t("finished_model") : t("stage_step", { stage: t(`stage_${sample.stage}`), step: number(sample.step) });
          return card("", name, `${about} · ${seconds(sample.seconds)}`, file, file.replace(/\.wav$/, ".png"));
        })));
    }) : empty(t("no_samples")));
  }

  function curves(runs, stages) {
    const inside = h("div", { class: "grid wide" });
    const draw = (which) => {
      stage = which;
      const part = (run) => run.parts.find((one) => one.stage === which);
      const series = (pick) => runs.map((run, i) => ({ name: run.name, colour: i, ...(part(run) ? pick(part(run)) : { x: [], y: [] }) }));
      inside.replaceChildren(
        h("div", { class: "stack" }, h("h3", {}, t("loss")), lineChart(series((one) => ({ x: one.step, y: one.curves.loss ?? [] })), { title: t("loss"), legend: true, wide: true })),
        h("div", { class: "stack" }, h("h3", {}, t("held_out_score")), lineChart(series((one) => ({ x: one.validations.map((v) => v.step), y: one.validations.map((v) => v.score), dots: true })), { title: t("held_out_score"), legend: true, wide: true })));
    };
    if (stage) draw(stage);
    return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, t("curves")),
      segments(t("stage"), stages.map((one) => [one, t(`stage_${one}`)]), stage, draw)), inside);
  }
}
