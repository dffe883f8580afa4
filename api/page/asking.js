// Requests to the server; no other file makes any.

const KEPT_AS = "plates.token";
const SILENCE_MS = 15_000;
// Relative, so that the page works behind a proxy that adds a path prefix.
export const ADDRESS = new URL("v1/plates", document.baseURI).href;

let token = keptToken();

function keptToken() {
  try {
    return sessionStorage.getItem(KEPT_AS) ?? "";
  } catch {
    return "";
  }
}

/** Use a token from now on. It is kept in memory, and with `remember` also across reloads. */
export function useToken(value, remember) {
  token = value;
  try {
    if (remember) sessionStorage.setItem(KEPT_AS, value);
    else sessionStorage.removeItem(KEPT_AS);
  } catch {
    // Storage is disabled, so the token is only in memory.
  }
}

export const hasToken = () => token !== "";

/** An error answer of the server; the status is 0 if the server can't be reached. */
export class Refusal extends Error {
  constructor({ status, detail = "", instance = "", retryAfterS = 0 }) {
    super(detail);
    const retryAt = performance.now() + 1000 * retryAfterS;
    Object.assign(this, { status, detail, instance, retryAt });
  }
}

/** The form fields that filter the plates, without unset ones. */
export function filterFields({ roi, minWidth }) {
  const fields = {};
  if (roi) fields.roi = roi.join(",");
  if (minWidth) fields.min_width = String(minWidth);
  return fields;
}

/**
 * Have a photo read.
 *
 * @returns the answer's JSON.
 * @throws {Refusal} for every other answer, or an AbortError if `signal` aborts the request.
 */
export async function readPlates(file, filter, signal) {
  const response = await post(ADDRESS, file, filterFields(filter), signal);
  return received(response.json());
}

/** Get the photo with all its plates blurred, regardless of the filter. */
export async function redacted(file, signal) {
  const response = await post(`${ADDRESS}?redact=true`, file, {}, signal);
  return received(response.blob());
}

/** Get the JSON answer of a cameras' route. */
export async function askJson(path, fields = {}) {
  const address = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(fields)) if (value) address.searchParams.set(name, value);
  return received((await ask(address, {})).json());
}

/** Get a picture from the server, as a Blob. */
export async function askPicture(path) {
  return received((await ask(new URL(path, document.baseURI), {})).blob());
}

/**
 * Receive server-sent events until the signal aborts. Throws an error if the stream ends, or stays
 * silent for SILENCE_MS. Calls `take` with the parsed JSON of each event; events that arrive before
 * `opened` is done are taken after it. Not an EventSource, which can't send a token.
 */
export async function hear(path, take, signal, opened) {
  const response = await ask(new URL(path, document.baseURI), { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  await opened().catch((error) => {
    reader.cancel();
    throw error;
  });
  let rest = "";
  for (;;) {
    // The server sends something twice a second, even without events.
    const silence = setTimeout(() => reader.cancel(), SILENCE_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) throw new Refusal({ status: 0 });
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) take(JSON.parse(data.slice(6)));
    }
  }
}

async function post(address, file, fields, signal) {
  // Fails for a folder, or a file changed since it was chosen; fetch would report a network error.
  await file.slice(0, 1).arrayBuffer().catch((error) => {
    throw new Refusal({ status: 400, detail: error.message });
  });
  const form = new FormData();
  form.set("image", file, file.name || "photo");
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return ask(address, { method: "POST", body: form, signal });
}

async function ask(address, options) {
  // A header can't contain other characters.
  if (/[^\x20-\x7e]/.test(token)) throw new Refusal({ status: 403, detail: "No token has such characters." });
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  // Without a limit (old browsers have none), a page whose network is gone would wait for minutes.
  const signal = AbortSignal.timeout?.(SILENCE_MS);
  const response = await received(fetch(address, { cache: "no-store", headers, signal, ...options }));
  if (!response.ok) throw await refusalOf(response);
  return response;
}

/** Wait for an answer or its body. If it breaks off, the server counts as out of reach. */
function received(part) {
  return part.catch((error) => {
    throw error.name === "AbortError" ? error : new Refusal({ status: 0 });
  });
}

async function refusalOf(response) {
  const problem = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new Refusal({
    // A 502 without an instance comes from a proxy whose service is away.
    status: response.status === 502 && !problem.instance ? 503 : response.status,
    detail: problem.detail ?? "",
    instance: problem.instance ?? "",
    retryAfterS: Number.isFinite(seconds) ? seconds : 0,
  });
}
