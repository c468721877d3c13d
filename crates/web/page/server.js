// What the server is: asked again and again, so that the page follows it.

import { getJson } from "./api.js";

const listeners = new Set();

export const server = {
  /** The last answer of `/studio/state`; null before the first. */
  state: null,
  /** Calls back on every change, until the returned function is called. */
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

/** The model that is spoken with: the one that was chosen, else the first; none where there is no model yet. */
export function currentModel() {
  const models = server.state?.models ?? [];
  const chosen = sessionStorage.getItem(MODEL);
  return models.find((model) => model.name === chosen) ?? models[0] ?? null;
}

export function chooseModel(name) {
  sessionStorage.setItem(MODEL, name);
  listeners.forEach((listener) => listener(server.state ?? {}));
}

/** A path that asks of the current model. */
export function ofModel(path) {
  const model = currentModel();
  return model ? `${path}?model=${encodeURIComponent(model.name)}` : path;
}

export async function voiceNames() {
  return (await getJson(ofModel("/v1/audio/voices"))).voices.map((voice) => voice.id);
}
