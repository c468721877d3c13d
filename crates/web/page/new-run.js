// New run: form, resolved plan and start.

import { getJson, postJson } from "./api.js";
import { failure, field, h, icon, iconButton, select } from "./dom.js";
import { t } from "./i18n.js";
import { server } from "./server.js";

/** Settings that are always shown. */
const SHOWN = ["data.train_data", "model.preset", "training.optimization_level", "data.batch_size", "training.sample_every", "training.checkpoint_every"];
const STEPS = ["dvae", "gpt", "decoder"];

export async function mount(root, [folderRoot, ...parts]) {
  const state = server.state ?? (await getJson("/studio/state"));
  const [{ runs }, { settings }] = await Promise.all([getJson("/studio/runs"), getJson("/studio/settings")]);
  const known = new Map(settings.map((setting) => [setting.path, setting]));
  const presets = known.get("model.preset")?.choices ?? [];

  const name = h("input", { placeholder: t("next_number"), maxlength: 100, pattern: "[A-Za-z0-9][A-Za-z0-9._-]*", dir: "ltr", autocomplete: "off" });
  const folder = h("input", { dir: "ltr", list: "folders", placeholder: t("built_in_demo"), value: parts.join("/"), autocomplete: "off" });
  const base = select([["", t("built_in_demo")], ...state.roots.map((one, i) => [String(i), one])], folderRoot ?? "");
  const preset = select([["", t("default_of", { value: known.get("model.preset")?.default ?? "" })], ...presets.map((one) => [one, one])], "");
  const from = select([["", t("from_nothing")], ...runs.filter((one) => one.state === "finished").map((one) => [one.name, one.name])], "");
  const stage = select([["", t("all_stages")], ...STEPS.map((one) => [one, t(`stage_${one}`)])], "");
  const steps = Object.fromEntries(STEPS.map((one) => [one, h("input", { type: "number", min: 0, placeholder: t("automatic"), inputmode: "numeric" })]));
  const more = [];
  const moreList = h("div", { class: "stack" });
  const choices = h("datalist", { id: "settings-list" }, settings.map((setting) => h("option", { value: setting.path }, setting.doc)));
  const planned = h("section", { class: "card", "aria-label": t("plan") });
  const errorArea = h("div");
  const go = h("button", { class: "primary", type: "submit" }, icon("play"), t("start_run"));

  const formRequest = () => {
    const values = {};
    if (preset.value) values["model.preset"] = preset.value;
    for (const one of STEPS) if (steps[one].value !== "") values[`training.${one}_steps`] = Number(steps[one].value);
    for (const { path, value } of more) if (path.value.trim()) values[path.value.trim()] = value.value.trim();
    return {
      name: name.value.trim() || null,
      corpus: base.value === "" ? null : { root: Number(base.value), path: folder.value.trim() },
      stage: stage.value || null,
      from: from.value || null,
      settings: values,
    };
  };
  let turn = 0;
  let timer;
  const preview = () => {
    folder.disabled = base.value === "";
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const mine = ++turn;
      try {
        const plan = await postJson("/studio/plan", formRequest());
        if (mine === turn) showPlan(plan);
        go.disabled = false;
      } catch (error) {
        if (mine !== turn) return;
        planned.replaceChildren(h("h2", {}, t("plan")), failure(error));
        go.disabled = true;
      }
    }, 250);
  };

  const addSetting = (path = "", value = "") => {
    const entry = {
      path: h("input", { list: "settings-list", placeholder: "training.learning_rate", dir: "ltr", "aria-label": t("setting"), value: path }),
      value: h("input", { dir: "ltr", "aria-label": t("value"), value }),
    };
    const row = h("div", { class: "row" }, h("div", { class: "grow" }, entry.path), h("div", { class: "grow" }, entry.value),
      iconButton("trash", t("remove"), () => { more.splice(more.indexOf(entry), 1); row.remove(); preview(); }));
    entry.path.addEventListener("change", () => {
      const setting = known.get(entry.path.value);
      if (setting) entry.value.placeholder = `${setting.default} (${setting.allowed})`;
    });
    more.push(entry);
    moreList.append(row);
  };

  const form = h("form", { class: "card", oninput: preview, onsubmit: async (event) => {
    event.preventDefault();
    go.disabled = true;
    errorArea.replaceChildren();
    try {
      const { name: started } = await postJson("/studio/runs", formRequest());
      location.hash = `#/training/run/${encodeURIComponent(started)}`;
    } catch (error) {
      errorArea.replaceChildren(failure(error));
      go.disabled = false;
    }
  } },
    h("div", { class: "row" }, field(t("name"), name), field(t("preset"), preset), field(t("from"), from)),
    h("div", { class: "row" }, field(t("root"), base), field(t("folder"), folder)),
    h("div", { class: "row" }, field(t("stage"), stage), STEPS.map((one) => field(t("steps_of", { stage: t(`stage_${one}`) }), steps[one], { class: "grow narrow" }))),
    h("details", {}, h("summary", {}, t("more_settings")), choices, moreList,
      h("button", { type: "button", onclick: () => addSetting() }, icon("plus"), t("add_setting"))),
    errorArea,
    h("div", { class: "row" }, h("div", { class: "end" }, go)));
  root.append(h("div", { class: "page" },
    h("div", { class: "head" }, h("div", { class: "row center" }, iconButton("back", t("back"), () => (location.hash = "#/training")), h("h1", {}, t("new_run"))),
      h("p", { class: "lead" }, t("new_run_lead"))),
    form, planned));
  addSetting();
  preview();

  function showPlan({ values, notes, command }) {
    const row = (one) => h("tr", {}, h("td", { class: "mono" }, h("bdi", {}, one.path)), h("td", { class: "mono" }, one.value === "null" ? h("span", { class: "muted" }, t("automatic")) : h("bdi", {}, one.value)),
      h("td", { class: "muted small" }, one.capped ?? one.origin));
    const table = (rows) => h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {}, [t("setting"), t("value"), t("origin")].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map(row))));
    const written = values.filter((one) => one.is_written || one.origin.startsWith("auto") || SHOWN.includes(one.path) || STEPS.some((stage) => one.path === `training.${stage}_steps`));
    planned.replaceChildren(h("h2", {}, t("plan")),
      ...notes.map((note) => h("p", { class: "note warn", dir: "auto" }, note)),
      table(written),
      h("details", {}, h("summary", {}, t("all_settings", { n: values.length })), table(values)),
      h("details", {}, h("summary", {}, t("as_command")), h("pre", { class: "code" }, command)));
  }
}
