// One card for each plate: its picture, its text, and the scores.

import { copies } from "./copying.js";
import { light } from "./drawing.js";
import { byId, element } from "./elements.js";
import { aspectOf, drawRectified } from "./rectify.js";
import { counted, hasText, number, percent, smallPercent, text } from "./texts.js";

const SURE = 0.95;
const RATHER_SURE = 0.8;
const HIGH_ASPECT = 2.6; // Wide pictures of plates with a lower aspect ratio would fill the card.

const sureness = (score) => (score >= SURE ? "high" : score >= RATHER_SURE ? "middle" : "low");

/**
 * The card of one plate.
 *
 * @param image the photo to cut the plate from, or null if the browser can't show it.
 */
export function card(plate, index, image) {
  const lit = { onpointerenter: () => light(index), onpointerleave: () => light(null) };
  const focus = { onfocusin: () => light(index), onfocusout: () => light(null) };
  const name = text(plate.readable ? "plate" : "plate_unreadable", {
    number: index + 1, text: plate.text,
  });
  return element(
    "li",
    { class: "card", "data-plate": index, ...lit, ...focus },
    element("h3", { class: "unseen" }, name),
    heading(plate, index),
    element("div", { class: pairing(plate) }, crop(plate, index, image), face(plate)),
    facts(plate),
    candidates(plate),
  );
}

function heading(plate, index) {
  return element(
    "div",
    { class: "heading" },
    element("button", {
      type: "button", class: "number", "aria-label": text("show", { number: index + 1 }),
      onclick: () => byId("frame").scrollIntoView({ block: "center" }),
    }, String(index + 1)),
    element("p", { class: `verdict ${plate.readable ? sureness(plate.score) : "low"}` },
      ...verdict(plate)),
    plate.readable ? copyButton(plate.text) : null,
  );
}

function verdict(plate) {
  const sure = percent(plate.score, 1);
  if (plate.readable) return [text("sure", { percent: sure })];
  if (!plate.candidates.length) return [element("strong", {}, text("unreadable"))];
  const guess = text("guess", { percent: sure });
  return [element("strong", {}, text("unreadable")), ` · ${guess}`];
}

function pairing(plate) {
  const high = aspectOf(plate.quad) < HIGH_ASPECT;
  if (high && plate.rows.length > 1) return "pair beside";
  return high ? "pair high" : "pair";
}

function copyButton(words) {
  const button = element("button", {
    type: "button", class: "copy", "aria-label": text("copy_text", { text: words }),
  }, text("copy"));
  return copies(button, () => words);
}

function crop(plate, index, image) {
  if (!image) return null;
  const label = text("crop", { number: index + 1 });
  const canvas = element("canvas", { class: "crop", role: "img", "aria-label": label });
  return drawRectified(canvas, image, plate.quad) ? canvas : null;
}

/** The text in the plate's rows, with the score under each character. */
function face(plate) {
  const code = plate.region?.code ?? "";
  // A text that both starts and ends with the region's code has it at the start.
  const atEnd = code && plate.text.endsWith(code) && !plate.text.startsWith(code);
  const regionAt = atEnd ? plate.text.length - code.length : Infinity;
  const characters = plate.characters.map(({ char, score }, place) =>
    character(char, score, place >= regionAt, place === regionAt));
  const cut = plate.rows[0]?.length ?? 0;
  const rows = [characters.slice(0, cut), characters.slice(cut)].filter((row) => row.length);
  const lists = rows.map((row) =>
    element("ol", { "aria-label": text("characters") }, ...row));
  return element("div", {
    class: plate.readable ? "face" : "face unreadable",
    "data-kind": plate.format.split(".").slice(1).join("."),
  }, ...(lists.length ? lists : ["?"]));
}

function character(char, score, inRegion, startsRegion) {
  const classes = [sureness(score), inRegion ? "in-region" : "", startsRegion ? "starts" : ""];
  const sure = text("character", { char, percent: percent(score, 2) });
  return element(
    "li",
    { class: classes.join(" ").trim(), title: sure },
    element("span", { class: "glyph" }, char),
    element("span", { class: "sure" }, String(Math.floor(score * 100 + 1e-6))),
  );
}

function facts(plate) {
  const [x0, y0, x1, y1] = plate.box;
  const size = { width: number(x1 - x0), height: number(y1 - y0) };
  const native = plate.text_native && plate.text_native !== plate.text;
  return element(
    "dl",
    {},
    ...fact("format", formatName(plate.format)),
    ...(plate.region?.code
      ? fact("issued", `${plate.region.code} · `, english(plate.region.name)) : []),
    ...(native ? fact("native", element("code", {}, plate.text_native)) : []),
    ...fact("size", text("pixels", size)),
    ...fact("detection", percent(plate.detection_score)),
  );
}

/** The country in the page's language, and the kind of plate: "Russia, car, two lines". */
function formatName(format) {
  const [country, ...kind] = format.split(".");
  if (!kind.length) return text("kind.unknown");
  const known = hasText(`kind.${kind.join(".")}`) ? kind.join(".") : kind[0];
  const kindName = hasText(`kind.${known}`) ? text(`kind.${known}`) : kind.join(" ");
  const names = new Intl.DisplayNames(document.documentElement.lang, { type: "region" });
  return `${country.length === 2 ? names.of(country.toUpperCase()) : country}, ${kindName}`;
}

const english = (words) => element("span", { lang: "en" }, words);

const fact = (key, ...values) => [
  element("div", {}, element("dt", {}, text(key)), element("dd", {}, ...values)),
];

function candidates(plate) {
  if (!plate.candidates.length) return null;
  const rows = plate.candidates.map((candidate) =>
    element("li", {},
      element("code", {}, candidate.text),
      element("meter", { min: 0, max: 1, value: candidate.score, "aria-hidden": "true" }),
      element("span", { class: "score" }, smallPercent(candidate.score))));
  const title = counted("candidates", rows.length);
  return element("details", { class: "candidates" },
    element("summary", {}, title),
    element("ol", { "aria-label": title }, ...rows));
}
