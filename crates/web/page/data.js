// Data view: choose, check, browse and listen to a corpus.

import { getBlob, getJson, postJson } from "./api.js";
import { empty, failure, figures, follow, h, icon, iconButton, select } from "./dom.js";
import { languageName, named, number, percent, seconds, t, when } from "./i18n.js";
import { histogram, shares } from "./charts.js";
import { playButton } from "./sound.js";
import { server } from "./server.js";

const ROWS = 20;

const query = (fields) => new URLSearchParams(fields).toString();

/** The URL of a corpus: `#/data/0/folder/inside`. */
export async function mount(root, rest) {
  const [number_, ...parts] = rest;
  const at = { root: number_ ?? "0", path: parts.join("/") };
  const stops = [];
  const chooser = h("section", { class: "card", "aria-label": t("folders") });
  const body = h("div", { class: "page" });
  root.append(h("div", { class: "page" },
    h("div", { class: "head" }, h("h1", {}, t("data")), h("p", { class: "lead" }, t("data_lead"))), chooser, body));
  const roots = server.state?.roots ?? (await getJson("/studio/state")).roots;
  if (!roots.length) {
    chooser.append(empty(t("no_roots")), h("pre", { class: "code" }, "myxtts serve --data-root DIR"));
    return undefined;
  }
  try {
    const listed = await getJson(`/studio/folders?${query(at)}`);
    showFolders(listed);
    if (listed.looks_like_corpus) {
      const report = h("section", { class: "card", "aria-label": t("check") });
      const clips = h("section", { class: "card", "aria-label": t("clips") });
      body.append(report, clips);
      stops.push(showCheck(report, at));
      showClips(clips, at);
    }
  } catch (error) {
    chooser.append(failure(error), h("a", { href: "#/data" }, t("back_to_start")));
  }
  return () => stops.forEach((stop) => stop());

  function showFolders(listed) {
    const go = (path) => `#/data/${at.root}${path ? `/${path.split("/").map(encodeURIComponent).join("/")}` : ""}`;
    const crumbs = h("nav", { class: "row center", "aria-label": t("folders") });
    if (roots.length > 1) {
      const choice = select(roots.map((name, i) => [String(i), name]), at.root, { "aria-label": t("root") });
      choice.addEventListener("change", () => (location.hash = `#/data/${choice.value}`));
      crumbs.append(h("div", {}, choice));
    } else crumbs.append(icon("folder"), h("a", { href: go("") }, roots[Number(at.root)] ?? "?"));
    parts.forEach((part, i) => crumbs.append(h("span", { class: "muted" }, "/"), h("a", { href: go(parts.slice(0, i + 1).join("/")), dir: "auto" }, part)));
    chooser.append(crumbs);
    if (listed.folders.length) {
      chooser.append(h("ul", { class: "list" }, listed.folders.map((folder) => {
        const path = [at.path, folder.name].filter(Boolean).join("/");
        return h("li", {}, icon("folder"), h("a", { class: "body", href: go(path), dir: "auto" }, folder.name),
          folder.looks_like_corpus && !listed.looks_like_corpus && h("span", { class: "tag good" }, t("corpus")));
      })));
    } else if (!listed.looks_like_corpus) chooser.append(empty(t("no_folders")));
  }
}

function showCheck(card, at) {
  const start = h("button", { class: "primary", type: "button", onclick: async () => {
    try {
      await postJson("/studio/check", at);
      again();
    } catch (error) {
      card.append(failure(error));
    }
  } }, t("run_check"));
  const train = h("a", { class: "button", href: `#/training/new/${at.root}/${at.path.split("/").map(encodeURIComponent).join("/")}` }, t("train_on_this"));
  const head = h("div", { class: "card-head" }, h("h2", {}, t("check")), h("div", { class: "row center" }, train, start));
  const inside = h("div", { class: "stack" });
  card.append(head, inside);
  const [again, stop] = follow(() => getJson(`/studio/check?${query(at)}`), (found, error) => {
    start.disabled = found?.state === "running";
    inside.replaceChildren(...(error ? [failure(error)] : reportOf(found)));
  }, 1000);
  return stop;
}

function reportOf({ state, log, report, problems, time }) {
  if (state === "none") return [h("p", { class: "muted" }, t("not_checked"))];
  if (state === "running") return [h("p", { class: "muted" }, h("span", { class: "tag live" }, t("checking"))), log ? h("pre", { class: "code log" }, log.trim().split("\n").slice(-3).join("\n")) : ""];
  if (state === "failed") return [h("pre", { class: "note bad log" }, log)];
  const { verdict, corpus, kinds } = report;
  const duration = (share) => share.seconds;
  const listed = (map, name) => Object.entries(map).sort((a, b) => duration(b[1]) - duration(a[1])).slice(0, 12)
    .map(([id, share]) => [name(id), share.seconds, `${number(share.utterances)} · ${seconds(share.seconds)}`]);
  return [
    h("div", { class: "row center" },
      h("span", { class: verdict.passed ? "tag good" : "tag bad" }, verdict.passed ? t("passed") : t("refused")),
      h("span", { class: "muted small" }, corpus.why, " · ", when(time))),
    figures([
      [t("clips"), number(corpus.utterances)],
      [t("usable"), number(verdict.usable_utterances)],
      [t("speech"), seconds(verdict.usable_seconds)],
      [t("failed_share"), percent(verdict.share, 1)],
      [t("speakers"), number(Object.keys(report.speakers).length)],
      [t("languages"), number(Object.keys(report.languages).length)],
    ]),
    ...report.notes.map((note) => h("p", { class: "note", dir: "auto" }, note)),
    h("div", { class: "grid" },
      h("div", { class: "stack" }, h("h3", {}, t("length_histogram")), histogram(report.histogram.bins, { title: t("length_histogram"), wide: true })),
      h("div", { class: "stack" }, h("h3", {}, t("speakers")), shares(listed(report.speakers, (id) => id)), h("h3", {}, t("languages")), shares(listed(report.languages, languageName)))),
    h("h3", {}, t("problems")),
    problems ? h("div", { class: "stack" },
      h("div", { class: "row" }, Object.entries(kinds).map(([kind, counts]) =>
        h("span", { class: counts.errors ? "tag bad" : "tag warn" }, `${named("problem", kind)}: ${number(counts.errors + counts.warnings)}`))),
      h("div", { class: "table-wrap" }, h("table", {},
        h("thead", {}, h("tr", {}, [t("where"), t("what")].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, report.problems.slice(0, 100).map((problem) => h("tr", {},
          h("td", { class: "mono" }, h("bdi", {}, problem.id ?? problem.origin?.file?.split("/").pop() ?? "")),
          h("td", { class: "text", dir: "auto" }, problem.detail ?? problem.message ?? problem.kind))))))) 
      : h("p", { class: "note good" }, t("no_problems")),
  ];
}

function showClips(card, at) {
  let from = 0;
  let turn = 0;
  const search = h("input", { type: "search", placeholder: t("search_placeholder"), "aria-label": t("search"), dir: "auto" });
  const inside = h("div", { class: "stack" });
  card.append(h("div", { class: "card-head" }, h("h2", {}, t("clips")), h("div", { class: "grow" }), h("div", {}, search)), inside);
  let timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { from = 0; load(); }, 250);
  });
  load();

  async function load() {
    const mine = ++turn;
    try {
      const page = await getJson(`/studio/clips?${query({ ...at, from, count: ROWS, search: search.value })}`);
      if (mine !== turn) return;
      inside.replaceChildren(table(page), pager(page));
    } catch (error) {
      inside.replaceChildren(failure(error));
    }
  }

  function table({ clips }) {
    if (!clips.length) return empty(t("no_clips"));
    const place = (what, id) => `/studio/clips/${what}?${query({ ...at, id })}`;
    return h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {},
        h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, t("play"))),
        h("th", { scope: "col" }, t("text")), h("th", { scope: "col" }, t("mel")), h("th", { scope: "col" }, t("speaker")),
        h("th", { scope: "col" }, t("language")), h("th", { scope: "col", class: "number" }, t("length")))),
      h("tbody", {}, clips.map((clip) => h("tr", {},
        h("td", {}, playButton(() => getBlob(place("sound", clip.id)), t("listen_to", { name: clip.id }))),
        h("td", { class: "text" }, h("div", { dir: "auto" }, clip.text), h("div", { class: "small muted mono" }, h("bdi", {}, clip.id))),
        h("td", {}, picture(place("mel", clip.id), t("mel_of", { name: clip.id }))),
        h("td", {}, h("bdi", {}, clip.speaker)),
        h("td", {}, languageName(clip.language)),
        h("td", { class: "number" }, seconds(clip.seconds)))))));
  }

  function pager({ total }) {
    const turnTo = (next) => { from = next; load(); };
    const back = iconButton("back", t("previous"), () => turnTo(Math.max(0, from - ROWS)));
    const next = iconButton("forward", t("next"), () => turnTo(from + ROWS));
    back.disabled = from === 0;
    next.disabled = from + ROWS >= total;
    return h("div", { class: "row center" }, h("span", { class: "muted small end" },
      t("from_to", { from: number(Math.min(from + 1, total)), to: number(Math.min(from + ROWS, total)), total: number(total) })), back, next);
  }
}

/** An image that is loaded when it becomes visible. */
export function picture(path, label) {
  const box = h("div", { class: "mel" });
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    getBlob(path).then(
      (blob) => box.replaceWith(h("img", { class: "mel", alt: label, src: URL.createObjectURL(blob) })),
      () => box.classList.add("missing"));
  }).observe(box);
  return box;
}
