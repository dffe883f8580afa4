// Draws boxes and quads over the photo, and highlights what belongs to one plate.

import { drawn, element } from "./elements.js";

const NEAR_TOP = 0.1;

/**
 * Draw all plates over the photo.
 *
 * The SVG's viewBox has the photo's pixels, so the drawing scales with the photo; lines keep
 * their width (vector-effect in the style sheet).
 *
 * @param pick called with a plate's index when it is clicked.
 * @returns the SVG element.
 */
export function drawPlates(container, { image, plates }, pick) {
  const svg = drawn("svg", {
    viewBox: `0 0 ${image.width} ${image.height}`,
    preserveAspectRatio: "none",
    focusable: "false",
  });
  svg.append(...plates.map((plate, index) => outline(plate, index, pick)));
  const tags = plates.map((plate, index) => tag(plate, index, image));
  container.replaceChildren(svg, ...tags);
  return svg;
}

function outline(plate, index, pick) {
  const [x0, y0, x1, y1] = plate.box;
  const points = plate.quad.map((point) => point.join(",")).join(" ");
  return drawn(
    "g",
    {
      class: plate.readable ? "outline" : "outline unreadable",
      "data-plate": index,
      onpointerenter: () => light(index),
      onpointerleave: () => light(null),
      onclick: () => pick(index),
    },
    drawn("rect", { class: "box", x: x0, y: y0, width: x1 - x0, height: y1 - y0 }),
    drawn("polygon", { class: "halo", points }),
    drawn("polygon", { class: "quad", points }),
  );
}

/** A tag with a plate's number and text beside its box; its position in per cent scales, too. */
function tag(plate, index, { width, height }) {
  const [x0, y0, x1, y1] = plate.box;
  const node = element("span", { class: "tag", "data-plate": index },
    element("b", {}, String(index + 1)), plate.text || "?");
  const below = y0 / height < NEAR_TOP;
  // The tag extends to the more distant side, where it has half the photo's width or more.
  const leftward = x0 + x1 > width;
  node.classList.toggle("unreadable", !plate.readable);
  node.classList.toggle("below", below);
  node.classList.toggle("leftward", leftward);
  node.style.left = `${(100 * (leftward ? x1 : x0)) / width}%`;
  node.style.top = `${(100 * (below ? y1 : y0)) / height}%`;
  return node;
}

/** Highlight a plate's outline, tag and card, and no others; null removes all highlights. */
export function light(index) {
  for (const node of document.querySelectorAll("[data-plate]")) {
    node.classList.toggle("lit", node.dataset.plate === String(index));
  }
}
