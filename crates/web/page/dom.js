// Elements, icons and helpers shared by all views.

import { t } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  speak: "M4 10v4M8 7v10M12 4v16M16 8v8M20 10v4",
  voices: "M12 3a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3ZM5.5 11a6.5 6.5 0 0 0 13 0M12 17.5V21",
  data: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3ZM4 6v6c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12v6c0 1.7 3.6 3 8 3s8-1.3 8-3v-6",
  training: "M3 20h18M5 16l4-5 4 3 6-8",
  play: "M8 5.5v13l10.5-6.5Z",
  pause: "M7 5h3.5v14H7zM13.5 5H17v14h-3.5z",
  stop: "M6.5 6.5h11v11h-11z",
  download: "M12 4v11m0 0 4-4m-4 4-4-4M5 20h14",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  again: "M4 12a8 8 0 1 0 2.5-5.8M4 4v4.5h4.5",
  copy: "M9 9h10v11H9zM5 15V4h10",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2.5v2M12 19.5v2M4.2 4.2l1.4 1.4M18.4 18.4l1.4 1.4M2.5 12h2M19.5 12h2M4.2 19.8l1.4-1.4M18.4 5.6l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z",
  folder: "M3.5 6.5v12h17v-10h-9l-2-2z",
  up: "M12 19V5m0 0-6 6m6-6 6 6",
  back: "M19 12H5m0 0 6-6m-6 6 6 6",
  forward: "M5 12h14m0 0-6-6m6 6-6 6",
  plus: "M12 5v14M5 12h14",
};
const SOLID = new Set(["play", "pause", "stop"]);

/** Creates an element. Properties starting with `on` are listeners, `class` is the class, all others are attributes. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name === "value") element.value = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an SVG element. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat(9).filter(Boolean));
  return element;
}

export function icon(name, more = "") {
  const kind = SOLID.has(name) ? "icon solid" : "icon";
  return s("svg", { class: `${kind} ${more}`, viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

/** An icon-only button with a label for screen readers and a tooltip. */
export function iconButton(name, label, onClick, more = "") {
  const flip = name === "back" || name === "forward" ? "flip" : "";
  return h("button", { type: "button", class: `quiet icon-button ${more}`, "aria-label": label, title: label, onclick: onClick }, icon(name, flip));
}

/** A labelled field; `control` gets a unique id. */
let fields = 0;
export function field(label, control, more = {}) {
  control.id ||= `field-${++fields}`;
  const value = more.value ? h("span", { class: "value" }) : null;
  const element = h("div", { class: more.class ?? "grow" }, h("label", { for: control.id }, label, value), control);
  if (more.value) {
    const show = () => (value.textContent = more.value(control.value));
    control.addEventListener("input", show);
    show();
  }
  if (more.hint) element.append(h("p", { class: "small muted" }, more.hint));
  return element;
}

export function select(options, value, properties = {}) {
  const element = h("select", properties, options.map(([id, name]) => h("option", { value: id }, name)));
  if (value !== undefined && options.some(([id]) => id === value)) element.value = value;
  return element;
}

/** A select for the model; nothing if there is only one. */
export function modelField(models, current, onChoose) {
  if (models.length < 2) return null;
  const choice = select(models.map((model) => [model.name, model.name]), current, { onchange: () => onChoose(choice.value) });
  return field(t("model"), choice);
}

export function figures(pairs) {
  return h("dl", { class: "figures" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function segments(label, options, chosen, onChoose) {
  const element = h("div", { class: "segments", role: "group", "aria-label": label });
  const buttons = options.map(([id, name]) =>
    h("button", { type: "button", "aria-pressed": String(id === chosen), data: { focus: `${label} ${id}` }, onclick: () => {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(options[i][0] === id)));
      onChoose(id);
    } }, name));
  element.append(...buttons);
  return element;
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** Replaces the content of an element. A focused control keeps the focus; it is found again by `data-focus`. */
export function replaceContent(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...children);
  if (!focused) return;
  const key = focused.dataset.focus;
  const next = focused.isConnected ? focused : key && element.querySelector(`[data-focus="${CSS.escape(key)}"]`);
  next?.focus({ preventScroll: true });
}

/** List elements by their content: an element stays, with its focus and playback, until its content changes. */
export function keyedList(make) {
  let rows = new Map();
  return (items) => {
    rows = new Map(items.map((item) => [JSON.stringify(item), item]).map(([key, item]) => [key, rows.get(key) ?? make(item)]));
    return [...rows.values()];
  };
}

/** Shows an error where it occurred. */
export function failure(error) {
  return h("p", { class: "note bad", role: "alert" }, error.message ?? String(error));
}

export function notice(text) {
  const element = h("div", {}, text);
  document.getElementById("notices").append(element);
  setTimeout(() => element.remove(), 6000);
}

/** Asks for confirmation before data is lost. */
export function confirmed(question, action) {
  return new Promise((resolve) => {
    const close = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const dialog = h("dialog", { "aria-label": question, oncancel: (event) => { event.preventDefault(); close(false); } },
      h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); close(true); } },
        h("p", {}, question),
        h("div", { class: "row" },
          h("button", { type: "button", class: "end", onclick: () => close(false) }, t("cancel")),
          h("button", { class: "danger", type: "submit" }, action))));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Follows background work of the server: polls until it has ended and calls `show` with each changed result, or with the error.
    Returns a function that restarts polling, and one that stops it. */
export function follow(ask, show, milliseconds) {
  let shown = "";
  let stop = null;
  const look = async () => {
    try {
      const found = await ask();
      const tag = JSON.stringify(found);
      if (tag !== shown) show(found);
      shown = tag;
      if (found.state !== "running") stop?.();
    } catch (error) {
      shown = "";
      show(null, error);
      stop?.();
    }
  };
  const again = () => {
    stop?.();
    stop = poll(look, milliseconds);
  };
  again();
  return [again, () => stop?.()];
}

/** Calls `work` now and at intervals until the returned function is called; never concurrently, and not while hidden. */
export function poll(work, milliseconds) {
  let timer;
  let over = false;
  const turn = async () => {
    if (!document.hidden) await work();
    if (!over) timer = setTimeout(turn, milliseconds);
  };
  turn();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
