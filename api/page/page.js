// The page: shows the current photo, and handles the buttons.

import { redacted, useToken } from "./asking.js";
import { takesPhotos } from "./choosing.js";
import { copies } from "./copying.js";
import { byId, element } from "./elements.js";
import { offerCameras } from "./passes.js";
import { clearProblem, showProblem } from "./problems.js";
import { dragsRegion, readFilter, writeFilter } from "./region.js";
import { showResults } from "./results.js";
import { Shots } from "./shots.js";
import { previewRegion, showStage, sizeOf } from "./stage.js";
import { chooseLanguage, text, translate } from "./texts.js";

let current = null;
const shots = new Shots((shot) => (shot === current ? show(shot) : showStrip()));

function show(shot) {
  const focused = document.activeElement;
  current = shot;
  document.body.classList.add("has-photo");
  byId("work").hidden = false;
  showStrip();
  const strip = byId("strip");
  const thumb = strip.querySelector('[aria-current="true"]');
  strip.scrollLeft = thumb.offsetLeft - (strip.clientWidth - thumb.offsetWidth) / 2;
  showStage(shot, pick);
  showResults(shot, () => again());
  const busy = shot.state === "waiting" || shot.state === "working";
  byId("cancel").hidden = !busy;
  byId("again").hidden = shot.state !== "cancelled";
  byId("redact").hidden = shot.state !== "done" || shot.answer.plates.length === 0;
  // The button that was pressed may be gone now, so move the focus elsewhere.
  const gone = !focused.getClientRects().length && !strip.contains(document.activeElement);
  if (gone) byId("photo-title").focus({ preventScroll: true });
}

/** Show thumbnails if there is more than one photo. */
function showStrip() {
  const strip = byId("strip");
  const focused = [...strip.children].findIndex((item) => item.contains(document.activeElement));
  strip.hidden = shots.list.length < 2;
  strip.replaceChildren(...shots.list.map((shot) => {
    const image = element("img", { src: shot.url, alt: shot.name });
    image.addEventListener("error", () => image.replaceWith(shot.name));
    const chosen = { "aria-current": String(shot === current), class: `thumb ${shot.state}` };
    return element("li", {}, element("button", {
      type: "button", ...chosen, onclick: () => choose(shot),
    }, image));
  }));
  strip.children[focused]?.firstChild.focus();
  byId("unread").textContent = shots.unread ? text("unread", { count: shots.unread }) : "";
}

function choose(shot) {
  writeFilter(shot.filter);
  show(shot);
}

/** Add photos. They keep the current minimum width, but not the region, which fits one photo only. */
function take(files) {
  const minWidth = current?.filter.minWidth ?? null;
  // If there are too many files at once, `shots` has already discarded the first ones.
  const added = files.map((file) => shots.add(file, { roi: null, minWidth }))
    .filter((shot) => shots.list.includes(shot));
  if (!added.length) return;
  document.querySelector('[data-tab="photos"][aria-pressed="false"]')?.click();
  writeFilter(added[0].filter);
  current = added[0];
  stopDrawing();
}

function again(filter = current.filter) {
  current.filter = filter;
  writeFilter(filter);
  shots.read(current);
  show(current);
}

/** Focus a plate's card, after a click on its outline. */
function pick(index) {
  const button = byId("plates").querySelector(`[data-plate="${index}"] .number`);
  button?.focus({ preventScroll: true });
  button?.closest("li").scrollIntoView({ block: "nearest" });
}

async function downloadRedacted(shot) {
  const button = byId("redact");
  button.disabled = true;
  clearProblem();
  byId("status").textContent = text("redacting");
  try {
    save(await redacted(shot.file), shot.name);
    if (shot === current) byId("status").textContent = text("redacted");
  } catch (problem) {
    byId("status").textContent = "";
    showProblem(problem, () => downloadRedacted(shot));
  }
  button.disabled = false;
}

function save(blob, name) {
  const extension = blob.type.split("/")[1] ?? "jpeg";
  const stem = name.replace(/\.[^.]*$/, "");
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: `${stem}-blurred.${extension}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** End drawing, and show the region that applies instead of an unfinished one. */
function stopDrawing() {
  byId("frame").classList.remove("choosing");
  byId("draw").setAttribute("aria-pressed", "false");
  show(current);
}

function wireFilter() {
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      again(readFilter());
    } catch (error) {
      byId("status").textContent = error.message;
    }
  });
  byId("clear").addEventListener("click", () => again({ roi: null, minWidth: null }));
  byId("draw").addEventListener("click", () => {
    const choosing = byId("frame").classList.toggle("choosing");
    byId("draw").setAttribute("aria-pressed", String(choosing));
    if (choosing) byId("status").textContent = text("drawing");
    else stopDrawing();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && byId("frame").matches(".choosing")) stopDrawing();
  });
  dragsRegion(byId("frame"), {
    size: () => sizeOf(current),
    preview: (roi) => previewRegion(current, roi),
    done: (roi) => {
      stopDrawing();
      if (roi) again({ ...current.filter, roi });
    },
  });
}

function wire() {
  takesPhotos(take);
  wireFilter();
  byId("cancel").addEventListener("click", () => shots.cancel(current));
  byId("again").addEventListener("click", () => again());
  byId("redact").addEventListener("click", () => downloadRedacted(current));
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(byId("token").value.trim(), byId("remember").checked);
    for (const shot of shots.list) if ([401, 403].includes(shot.problem?.status)) shots.read(shot);
    show(current);
  });
  copies(byId("copy-json"), () => byId("json").textContent);
  copies(byId("copy-curl"), () => byId("curl").textContent);
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      chooseLanguage(button.dataset.language);
      if (current) show(current);
    });
  }
}

translate();
wire();
offerCameras([byId("intake"), byId("work")]);
