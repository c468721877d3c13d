// State of the server, polled continuously.

import { getJson } from "./api.js";

const listeners = new Set();

export const server = {
  /** Last response of `/studio/state`; null before the first. */
  state: null,
  /** Calls the callback on every change until the returned function is called. */
  onchange(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

export async function refresh() {
  const before = JSON.stringify(server.state);
  try {
    server.state = await getJson("/studio/state");
  } catch {
    server.state = server.state && { ...server.state, ready: false, gone: true };
  }
  if (JSON.stringify(server.state) !== before) listeners.forEach((listener) => listener(server.state ?? {}));
}

const MODEL = "myxtts.model";

/** The current model: the chosen one, else the first; undefined if there is none. */
export function currentModel() {
  const models = server.state?.models ?? [];
  const chosen = sessionStorage.getItem(MODEL);
  return models.find((model) => model.name === chosen) ?? models[0] ?? null;
}

export function chooseModel(name) {
  sessionStorage.setItem(MODEL, name);
  listeners.forEach((listener) => listener(server.state ?? {}));
}

/** A path with the current model as a query parameter. */
export function ofModel(path) {
  const model = currentModel();
  return model ? `${path}?model=${encodeURIComponent(model.name)}` : path;
}

export async function voiceNames() {
  return (await getJson(ofModel("/v1/audio/voices"))).voices.map((voice) => voice.id);
}
