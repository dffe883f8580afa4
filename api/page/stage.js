// Shows the photo upright, as large as fits, with the drawing over it.

import { drawPlates } from "./drawing.js";
import { byId, drawn } from "./elements.js";
import { drawRegion } from "./region.js";
import { number, text } from "./texts.js";

// For photos whose size neither browser nor server knows yet.
const UNKNOWN = { width: 4, height: 3 };

/**
 * Decode a photo, to find out whether this browser can show it.
 *
 * @returns the image, upright (browsers apply the EXIF orientation, as the server does), or null.
 */
export async function decoded(url) {
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
    return image;
  } catch {
    return null;
  }
}

/** Size of a photo in pixels: the server's, if it has answered, else the browser's. */
export function sizeOf(shot) {
  if (shot.answer) return shot.answer.image;
  if (!shot.image) return UNKNOWN;
  return { width: shot.image.naturalWidth, height: shot.image.naturalHeight };
}

/** The image to cut plates from; null if its size differs from the server's. */
export function matchingImage({ image, answer }) {
  if (!image || !answer) return image;
  const { width, height } = answer.image;
  return image.naturalWidth === width && image.naturalHeight === height ? image : null;
}

/** Show a shot with its plates. */
export function showStage(shot, pick) {
  const size = sizeOf(shot);
  const frame = byId("frame");
  frame.style.setProperty("--ratio", size.width / size.height);
  frame.classList.toggle("working", shot.state === "working");
  frame.hidden = shot.image === null && shot.state === "failed";
  showImage(shot);
  byId("caption").textContent = size === UNKNOWN ? shot.name : text("caption", {
    name: shot.name, width: number(size.width), height: number(size.height),
  });
  showOverlay(shot, pick);
}

function showImage(shot) {
  const image = byId("image");
  const shown = matchingImage(shot);
  if (shown && image.src !== shot.url) image.src = shot.url;
  image.hidden = !shown;
  image.alt = text("photo_alt", { name: shot.name });
  const note = byId("unshown");
  note.hidden = Boolean(shown) || shot.image === undefined;
  note.textContent = text(shot.image ? "turned" : "unshown");
}

function showOverlay(shot, pick) {
  const size = sizeOf(shot);
  const known = shot.answer ?? { image: size, plates: [] };
  const svg = drawPlates(byId("drawing"), known, pick);
  drawRegion(svg, shot.filter.roi, size);
}

/** Draw the region during the drag. */
export function previewRegion(shot, roi) {
  const svg = byId("drawing").querySelector("svg") ?? drawn("svg");
  drawRegion(svg, roi, sizeOf(shot));
}
