// Asking the server; the only file that does.

const KEPT_AS = "plates.token";
// Relative, so that the page works behind a proxy that serves it under a path of its own.
export const ADDRESS = new URL("v1/plates", document.baseURI).href;

let token = keptToken();

function keptToken() {
  try {
    return sessionStorage.getItem(KEPT_AS) ?? "";
  } catch {
    return "";
  }
}

/** Use a token from now on. It is in memory alone, unless it is to outlive a reload. */
export function useToken(value, remember) {
  token = value;
  try {
    if (remember) sessionStorage.setItem(KEPT_AS, value);
    else sessionStorage.removeItem(KEPT_AS);
  } catch {
    // Storage is switched off: then it can't be remembered.
  }
}

export const hasToken = () => token !== "";

/** What the server, or the lack of one (status 0), answered instead of plates. */
export class Refusal extends Error {
  constructor({ status, detail = "", instance = "", retryAfterS = 0 }) {
    super(detail);
    const retryAt = performance.now() + 1000 * retryAfterS;
    Object.assign(this, { status, detail, instance, retryAt });
  }
}

/** The form fields that choose among the plates; unset ones are left out. */
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
 * @throws {Refusal} for every other answer; an AbortError where `signal` says so.
 */
export async function readPlates(file, filter, signal) {
  const response = await post(ADDRESS, file, filterFields(filter), signal);
  return response.json();
}

/** Get the photo with all its plates blurred, whichever of them are shown. */
export async function redacted(file, signal) {
  const response = await post(`${ADDRESS}?redact=true`, file, {}, signal);
  return response.blob();
}

async function post(address, file, fields, signal) {
  const form = new FormData();
  form.set("image", file, file.name || "photo");
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { method: "POST", body: form, headers, signal, cache: "no-store" };
  const response = await fetch(address, options).catch((error) => {
    throw error.name === "AbortError" ? error : new Refusal({ status: 0 });
  });
  if (!response.ok) throw await refusalOf(response);
  return response;
}

async function refusalOf(response) {
  const problem = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new Refusal({
    status: response.status,
    detail: problem.detail ?? "",
    instance: problem.instance ?? "",
    retryAfterS: Number.isFinite(seconds) ? seconds : 0,
  });
}
