// Page frame: navigation, language, theme and server status.

import { failure, h, icon, poll, replaceContent } from "./dom.js";
import { LANGUAGES, currentLanguage, setLanguage, t } from "./i18n.js";
import { currentModel, refresh, server } from "./server.js";
import * as data from "./data.js";
import * as speak from "./speak.js";
import * as training from "./training.js";
import * as voices from "./voices.js";

const VIEWS = { speak, voices, data, training };
const view = document.getElementById("view");
let leave = null;
let turn = 0;

function frame() {
  const here = place().name;
  document.querySelectorAll("[data-text]").forEach((element) => (element.textContent = t(element.dataset.text)));
  const tabs = document.getElementById("tabs");
  tabs.setAttribute("aria-label", t("views"));
  replaceContent(tabs, ...Object.keys(VIEWS).map((name) =>
    h("a", { href: `#/${name}`, "aria-current": name === here ? "page" : null, data: { focus: name } }, icon(name), h("span", {}, t(name)))));
  const isDark = document.documentElement.dataset.theme === "dark";
  const theme = document.getElementById("theme");
  theme.replaceChildren(icon(isDark ? "sun" : "moon"));
  theme.setAttribute("aria-label", isDark ? t("light") : t("dark"));
  theme.title = isDark ? t("light") : t("dark");
  const other = currentLanguage() === "fa" ? "en" : "fa";
  const language = document.getElementById("language");
  language.textContent = other === "fa" ? "فا" : "EN";
  language.lang = other;
  language.setAttribute("aria-label", LANGUAGES[other]);
  language.title = LANGUAGES[other];
  status(server.state);
}

function status(state) {
  const model = document.getElementById("model");
  const current = currentModel();
  const isReady = Boolean(current?.ready) && !state.gone;
  model.classList.toggle("ready", isReady);
  if (state?.gone) model.textContent = t("server_gone");
  else if (state && !current) model.textContent = t("no_model");
  // Models other than the first are opened on demand.
  else if (isReady || current && state.ready) model.textContent = current.name;
  else model.textContent = t("loading_model");
}

/** `#/training/run-001` is the view `training` with the rest `run-001`. */
function place() {
  const [name, ...rest] = decodeURIComponent(location.hash.replace(/^#\/?/, "")).split("/");
  return name in VIEWS ? { name, rest } : { name: "speak", rest: [] };
}

async function show() {
  const mine = ++turn;
  leave?.();
  leave = null;
  frame();
  const { name, rest } = place();
  document.title = `${t(name)} · MyXTTS`;
  const root = h("div");
  // If the focused control disappears with its view, the next Tab starts at the new view, not at the top of the page.
  const hadFocus = view.contains(document.activeElement);
  view.replaceChildren(root);
  if (hadFocus) view.focus({ preventScroll: true });
  try {
    const left = await VIEWS[name].mount(root, rest);
    if (mine === turn) leave = left;
    else left?.();
  } catch (error) {
    root.append(failure(error));
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("myxtts.theme", root.dataset.theme);
  } catch {
    // Without local storage, the choice lasts until the page is left.
  }
  frame();
});
document.getElementById("language").addEventListener("click", () => {
  setLanguage(currentLanguage() === "fa" ? "en" : "fa");
  show();
});
// Not by the URL, which would select another view.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
addEventListener("hashchange", show);
server.onchange(status);
poll(refresh, 5000);
show();
