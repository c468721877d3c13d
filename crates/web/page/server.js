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

export async function voiceNames() {
  return (await getJson("/v1/audio/voices")).voices.map((voice) => voice.id);
}
