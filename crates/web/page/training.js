// Training view: all runs, with links to one run, a new run and a comparison.

import { getJson } from "./api.js";
import { empty, failure, h, icon, poll, replaceContent } from "./dom.js";
import { compact, number, percent, t, when } from "./i18n.js";
import { lineChart } from "./charts.js";
import * as compare from "./compare.js";
import * as newRun from "./new-run.js";
import * as run from "./run.js";

/** `#/training`, `#/training/new/ROOT/PATH`, `#/training/compare/A,B`, `#/training/run/NAME`. */
export async function mount(root, [what, ...rest]) {
  if (what === "new") return newRun.mount(root, rest);
  if (what === "compare") return compare.mount(root, (rest[0] ?? "").split(",").filter(Boolean));
  if (what === "run" && rest[0]) return run.mount(root, rest[0]);
  return list(root);
}

export function stateTag(state) {
  const kind = { running: "live", finished: "good", failed: "bad", stopped: "" }[state] ?? "";
  return h("span", { class: `tag ${kind}` }, t(`state_${state}`));
}

/** Progress bar of a run with a text label. */
export function progressBar(done, all) {
  const share = all ? Math.min(1, done / all) : 0;
  const bar = h("span");
  bar.style.inlineSize = `${share * 100}%`;
  return h("div", { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": all ?? 0, "aria-valuenow": done ?? 0, "aria-label": t("progress") }, bar);
}

function list(root) {
  const chosen = new Set();
  const runs = h("section", { class: "card", "aria-label": t("runs") });
  const machine = h("section", { class: "card", "aria-label": t("machine") });
  const both = h("a", { class: "button", hidden: true }, t("compare"));
  const update = () => {
    both.hidden = chosen.size < 2;
    both.href = `#/training/compare/${[...chosen].join(",")}`;
  };
  root.append(h("div", { class: "page" },
    h("div", { class: "head" }, h("h1", {}, t("training")),
      h("div", { class: "row center" }, both, h("a", { class: "button", href: "#/training/new" }, icon("plus"), t("new_run"))),
      h("p", { class: "lead" }, t("training_lead"))),
    runs, machine));
  let shown = "";
  const stopRuns = poll(async () => {
    try {
      const found = (await getJson("/studio/runs")).runs;
      const tag = JSON.stringify(found);
      if (tag === shown) return;
      shown = tag;
      replaceContent(runs, h("h2", {}, t("runs")), found.length ? table(found) : empty(t("no_runs")));
    } catch (error) {
      runs.replaceChildren(h("h2", {}, t("runs")), failure(error));
      shown = "";
    }
  }, 3000);
  const stopMachine = machineCard(machine);

  function table(found) {
    return h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {},
        h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, t("compare"))),
        h("th", { scope: "col" }, t("name")), h("th", { scope: "col" }, t("state")), h("th", { scope: "col" }, t("stage")),
        h("th", { scope: "col", class: "number" }, t("step")), h("th", { scope: "col", class: "number" }, t("loss")), h("th", { scope: "col" }, t("began")))),
      h("tbody", {}, found.map((one) => {
        const box = h("input", { type: "checkbox", "aria-label": t("compare_run", { name: one.name }), data: { focus: `compare ${one.name}` }, onclick: (event) => event.stopPropagation(), onchange: (event) => {
          if (event.target.checked) chosen.add(one.name);
          else chosen.delete(one.name);
          update();
        } });
        box.checked = chosen.has(one.name);
        const place = `#/training/run/${encodeURIComponent(one.name)}`;
        return h("tr", { class: "link", onclick: (event) => { if (!event.target.closest("a, input")) location.hash = place; } },
          h("td", {}, box),
          h("td", {}, h("a", { href: place, data: { focus: `run ${one.name}` } }, h("bdi", {}, one.name))),
          h("td", {}, stateTag(one.state)),
          h("td", {}, one.stage ? t(`stage_${one.stage}`) : "–"),
          h("td", { class: "number" }, one.step === null ? "–" : `${number(one.step)} / ${number(one.steps)}`),
          h("td", { class: "number" }, compact(one.loss)),
          h("td", { class: "nowrap" }, when(one.began)));
      }))));
  }

  return () => {
    stopRuns();
    stopMachine();
  };
}

/** GPU, CPU and memory use of the last hour. */
export function machineCard(card) {
  return poll(async () => {
    try {
      const { gpus, samples } = await getJson("/studio/machine");
      const begin = samples[0]?.time ?? 0;
      const x = samples.map((sample) => (sample.time - begin) / 60);
      const minutes = (value) => t("minutes", { n: compact(value) });
      const charts = [];
      const gib = (value) => (value === null || value === undefined ? null : value / 2 ** 30);
      const inGib = (value) => t("gib", { n: compact(value) });
      const size = { height: 150, wide: !gpus.length, zero: true, formatX: minutes };
      if (gpus.length) {
        const each = (name, pick) => gpus.map((gpu, i) => ({ name: gpus.length > 1 ? `${name} ${i}` : name, x, y: samples.map((sample) => pick(sample.gpus[i]) ?? null), colour: i }));
        charts.push(
          [t("gpu_busy"), lineChart(each(t("gpu_busy"), (gpu) => gpu?.busy), { ...size, title: t("gpu_busy"), max: 100, formatY: (value) => percent(value / 100) })],
          [t("gpu_memory"), lineChart(each(t("gpu_memory"), (gpu) => gib(gpu?.memory)), { ...size, title: t("gpu_memory"), max: gib(gpus[0].memory_total) ?? undefined, formatY: inGib })],
          [t("gpu_clock"), lineChart(each(t("gpu_clock"), (gpu) => gpu?.clock), { ...size, title: t("gpu_clock"), formatY: (value) => t("megahertz", { n: compact(value) }) })]);
      }
      charts.push(
        [t("cpu"), lineChart([{ name: t("cpu"), x, y: samples.map((sample) => sample.cpu ?? null) }], { ...size, title: t("cpu"), max: 100, formatY: (value) => percent(value / 100) })],
        [t("memory"), lineChart([{ name: t("memory"), x, y: samples.map((sample) => gib(sample.memory)), colour: 2 }], { ...size, title: t("memory"), max: gib(samples.at(-1)?.memory_total) ?? undefined, formatY: inGib })]);
      replaceContent(card,
        h("div", { class: "card-head" }, h("h2", {}, t("machine")), h("span", { class: "muted small" }, gpus.length ? gpus.map((gpu) => gpu.name).join(", ") : t("no_gpu"))),
        h("div", { class: "grid" }, charts.map(([name, chart]) => h("div", { class: "stack" }, h("h3", {}, name), chart))));
    } catch (error) {
      card.replaceChildren(h("h2", {}, t("machine")), failure(error));
    }
  }, 4000);
}
