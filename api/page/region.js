// The region of interest: four numbers, or a rectangle dragged over the photo.

import { byId, drawn } from "./elements.js";
import { text } from "./texts.js";

const FIELDS = ["x0", "y0", "x1", "y1"];
const SMALLEST = 4; // In photo pixels; a smaller region counts as a click.

/**
 * Read the filter from the form.
 *
 * @returns {roi, minWidth}, null where nothing is set.
 * @throws {RangeError} with a message for users, if the region is invalid.
 */
export function readFilter() {
  const words = FIELDS.map((name) => byId(name).value.trim());
  const minWidth = Number(byId("min_width").value) || null;
  if (words.every((word) => word === "")) return { roi: null, minWidth };
  const [x0, y0, x1, y1] = words.map((word) => (word === "" ? Number.NaN : Number(word)));
  if (!(x0 < x1 && y0 < y1)) throw new RangeError(text("incomplete"));
  return { roi: [x0, y0, x1, y1], minWidth };
}

/** Write a filter into the form. */
export function writeFilter({ roi, minWidth }) {
  FIELDS.forEach((name, index) => { byId(name).value = roi ? roi[index] : ""; });
  byId("min_width").value = minWidth ?? "";
}

/** Draw the region over the photo and darken the rest; null removes the region. */
export function drawRegion(svg, roi, { width, height }) {
  svg.querySelectorAll(".outside, .region").forEach((node) => node.remove());
  if (!roi) return;
  const [x0, y0, x1, y1] = roi;
  const all = `M0 0H${width}V${height}H0Z`;
  const hole = `M${x0} ${y0}V${y1}H${x1}V${y0}Z`;
  svg.prepend(
    drawn("path", { class: "outside", d: all + hole }),
    drawn("rect", { class: "region", x: x0, y: y0, width: x1 - x0, height: y1 - y0 }),
  );
}

/**
 * Let the user drag a rectangle over the photo while the frame has the class `choosing`.
 *
 * @param size returns the photo's {width, height} in pixels.
 * @param preview called with the region while it is dragged.
 * @param done called with the region, or null after a mere click.
 */
export function dragsRegion(frame, { size, preview, done }) {
  let start = null;
  const active = () => frame.classList.contains("choosing");
  const region = (event) => between(start, positionIn(frame, event, size()));
  frame.addEventListener("pointerdown", (event) => {
    if (!active() || event.button !== 0) return;
    event.preventDefault();
    frame.setPointerCapture(event.pointerId);
    start = positionIn(frame, event, size());
  });
  frame.addEventListener("pointermove", (event) => {
    if (start && active()) preview(region(event));
  });
  frame.addEventListener("pointerup", (event) => {
    if (!start) return;
    const [x0, y0, x1, y1] = region(event);
    start = null;
    if (active()) done(Math.min(x1 - x0, y1 - y0) < SMALLEST ? null : [x0, y0, x1, y1]);
  });
  frame.addEventListener("pointercancel", () => {
    if (start) done(null);
    start = null;
  });
}

function positionIn(frame, event, { width, height }) {
  const bounds = frame.getBoundingClientRect();
  const inside = (share, length) => Math.round(length * Math.min(1, Math.max(0, share)));
  return [
    inside((event.clientX - bounds.left) / bounds.width, width),
    inside((event.clientY - bounds.top) / bounds.height, height),
  ];
}

const between = ([xa, ya], [xb, yb]) => [
  Math.min(xa, xb), Math.min(ya, yb), Math.max(xa, xb), Math.max(ya, yb),
];
