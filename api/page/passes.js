// The cameras' tab: live passes, and a search in the stored ones.

import { askJson, askPicture, hear, useToken } from "./asking.js";
import { byId, element, say } from "./elements.js";
import { counted, percent, text } from "./texts.js";

const MOST_ROWS = 100;
const RETRY_MS = 3000;
const STATES_MS = 5000;
// Months in words: numeric dates are ambiguous between countries.
const SPELT = { dateStyle: "medium", timeStyle: "medium" };
const WANTS_TOKEN = new Set([401, 403]); // no token, or a wrong one

let listening = null;
let live = false; // whether the rows are live passes or a search's results
const rows = new Map(); // by a pass's id

/** Show the tabs if the service has cameras. The cameras' tab hides `photosParts`. */
export async function offerCameras(photosParts) {
  try {
    await showStates();
  } catch (refusal) {
    if (!WANTS_TOKEN.has(refusal.status)) return;
  }
  byId("tabs").hidden = false;
  setInterval(() => {
    if (!byId("cameras").hidden && byId("cameras-token").hidden) showStates().catch(() => {});
  }, STATES_MS);
  for (const button of document.querySelectorAll("[data-tab]")) {
    button.addEventListener("click", () => open(button.dataset.tab, photosParts));
  }
  // A browser has six connections to a server for all tabs, so hidden tabs must not use one.
  document.addEventListener("visibilitychange", () => {
    if (!live || byId("cameras").hidden) return;
    if (document.hidden) listening.abort();
    else listen();
  });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  // Load the rows and the status again in the new language.
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      if (!byId("cameras").hidden) refresh();
    });
  }
  byId("search").addEventListener("reset", () => setTimeout(listen));
  byId("cameras-token").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(event.target.querySelector("input").value.trim(), false);
    byId("cameras-title").focus(); // The form will be hidden.
    refresh();
  });
}

const refresh = () => (live ? listen() : search());

function open(tab, photosParts) {
  const cameras = tab === "cameras";
  byId("cameras").hidden = !cameras;
  for (const part of photosParts) part.classList.toggle("other-tab", cameras);
  for (const button of document.querySelectorAll("[data-tab]")) {
    button.setAttribute("aria-pressed", String(button.dataset.tab === tab));
  }
  if (cameras) listen();
  else listening?.abort();
}

/** Show the latest stored passes, then new ones as they arrive. */
async function listen() {
  listening?.abort();
  live = true;
  const mine = (listening = new AbortController());
  while (!mine.signal.aborted) {
    try {
      await showStates();
      // Open the stream before fetching the list, so that no pass between them is lost.
      await hear("v1/events", show, mine.signal, async () => {
        const { passes } = await askJson("v1/passes");
        if (!mine.signal.aborted) list(passes, text("listening"));
      });
    } catch (refusal) {
      if (mine.signal.aborted) return;
      if (refused(refusal)) mine.abort();
    }
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

async function search() {
  listening?.abort();
  live = false;
  const mine = (listening = new AbortController());
  const moment = (id) => byId(id).value && new Date(byId(id).value).toISOString();
  const fields = {
    text: byId("search-text").value.trim(),
    camera: byId("search-camera").value,
    since: moment("search-since"),
    until: moment("search-until"),
  };
  try {
    const { passes, next } = await askJson("v1/passes", { ...fields, limit: String(MOST_ROWS) });
    if (mine.signal.aborted) return;
    list(passes, counted(next === null ? "passes_found" : "passes_shown", passes.length));
  } catch (refusal) {
    if (!mine.signal.aborted) refused(refusal);
  }
}

/** Replace the rows by these passes, which are in descending order of time. */
function list(passes, status) {
  rows.clear();
  byId("passes").tBodies[0].replaceChildren();
  passes.reverse().forEach(show);
  byId("cameras-token").hidden = true;
  say("cameras-status", status);
}

/** Show why there is no answer; true if a token is required, so that retrying is useless. */
function refused(refusal) {
  const wantsToken = WANTS_TOKEN.has(refusal.status);
  byId("cameras-token").hidden = !wantsToken;
  // A proxy whose service is away says nothing that users understand.
  say("cameras-status", refusal.detail
    ? `${text("server_says")} ${refusal.detail}` : text(live ? "unheard" : "problem.0"));
  return wantsToken;
}

async function showStates() {
  const { cameras } = await askJson("v1/cameras");
  const items = cameras.map(({ name, state }) =>
    element("li", { class: state?.status ?? "none" },
      element("strong", {}, name), " ", text(`state.${state?.status ?? "none"}`),
      element("span", { lang: "en" }, state?.problem ? `: ${state.problem}` : "")));
  // Keep equal items: a new one would take a reader's place or selection.
  const words = items.map((item) => item.textContent).join("");
  if (byId("camera-states").textContent !== words) byId("camera-states").replaceChildren(...items);
  const select = byId("search-camera");
  if (select.options.length !== cameras.length + 1) {
    select.replaceChildren(select.options[0],
      ...cameras.map(({ name }) => element("option", { value: name }, name)));
  }
}

/** Add a pass at the top, or update its row. */
function show(pass) {
  const row = element("tr", { "data-id": pass.id, class: pass.type === "pass.ended" ? "" : "running" },
    element("td", {}, new Date(pass.time.first).toLocaleString(document.documentElement.lang, SPELT)),
    element("td", {}, pass.camera),
    element("td", {}, element("code", {}, pass.text_native || text("unread_plate")), crop(pass)),
    element("td", {}, percent(pass.score, 1)),
    element("td", {}, motion(pass)),
    element("td", {}, pass.match
      ? `${pass.match.list}, ${percent(pass.match.probability, 1)}` : ""));
  const known = rows.get(pass.id);
  rows.set(pass.id, row);
  if (known) {
    known.replaceWith(row);
    return;
  }
  const body = byId("passes").tBodies[0];
  body.prepend(row);
  while (body.rows.length > MOST_ROWS) {
    rows.delete(body.lastElementChild.dataset.id);
    body.lastElementChild.remove();
  }
}

function motion({ type, motion: { stationary, direction } }) {
  const words = text(`motion.${stationary ? "stationary" : direction}`);
  return type === "pass.ended" ? words : [words, text("in_sight")].filter(Boolean).join(", ");
}

/** The plate's picture, hidden if the service has stored none. */
function crop(pass) {
  const image = element("img", { alt: text("pass_crop", { text: pass.text }), hidden: true });
  if (pass.type === "pass.ended") {
    askPicture(`v1/passes/${pass.id}/picture`).then((blob) => {
      image.src = URL.createObjectURL(blob);
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      image.hidden = false;
    }).catch(() => {});
  }
  return image;
}
