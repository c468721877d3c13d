// Requests to the server. If a token is required, the user enters it once per tab.

import { h } from "./dom.js";
import { t } from "./i18n.js";

const KEY = "myxtts.token";
let token = sessionStorage.getItem(KEY) ?? "";
let asking = null;

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? t("failed_with", { status }));
    this.status = status;
    this.param = error?.param;
    this.code = error?.code;
  }
}

export function hasToken() {
  return token !== "";
}

/** Fetches with the token; throws on an error response. */
export async function request(path, options = {}) {
  const sent = token;
  let response;
  try {
    const headers = { ...options.headers };
    if (sent) headers.Authorization = `Bearer ${sent}`;
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: t("no_server") });
  }
  if (response.status === 401) {
    // Another request may have obtained a valid token in the meantime.
    if (sent === token) await askToken(sent !== "");
    return request(path, options);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error);
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

export async function sendJson(method, path, body, options = {}) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { ...options, method, headers, body: JSON.stringify(body ?? {}) });
}

export async function postJson(path, body, options) {
  return (await sendJson("POST", path, body, options)).json();
}

export async function getBlob(path) {
  return (await request(path)).blob();
}

/** One dialog for all waiting requests. */
function askToken(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    const input = h("input", { type: "password", autocomplete: "current-password", required: true, id: "token" });
    const form = h("form", { method: "dialog" },
      h("h2", { id: "token-title" }, t("token_title")),
      h("p", { class: "muted" }, t("token_why")),
      wasWrong ? h("p", { class: "note bad", role: "alert" }, t("token_wrong")) : null,
      h("div", {}, h("label", { for: "token" }, t("token")), input),
      h("div", { class: "row" }, h("button", { class: "primary end", type: "submit" }, t("continue_button"))));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      token = input.value.trim();
      sessionStorage.setItem(KEY, token);
      dialog.close();
      asking = null;
      resolve();
    });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.replaceChildren(form);
    dialog.showModal();
  });
  return asking;
}
