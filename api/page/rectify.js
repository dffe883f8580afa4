// Cuts rectified pictures of plates from the photo.

const HEIGHT = 192; // Of the picture in pixels: enough for high-resolution displays.
const MARGIN = 0.06; // On each side, as a share of HEIGHT, to show that nothing is cut off.
const MIN_ASPECT = 0.5;
const MAX_ASPECT = 8;

const distance = ([x0, y0], [x1, y1]) => Math.hypot(x1 - x0, y1 - y0);

/** The aspect ratio of a plate, width over height. */
export function aspectOf([topLeft, topRight, , bottomLeft]) {
  const ratio = distance(topLeft, topRight) / distance(topLeft, bottomLeft);
  return Math.min(MAX_ASPECT, Math.max(MIN_ASPECT, ratio || 1));
}

/**
 * The affine map that takes a quad's corners to those of an upright rectangle.
 *
 * A quad is a parallelogram (the rectifier's theta is affine), so three corners define it. The
 * map expresses p - topLeft in the quad's sides u and v, and scales these coordinates.
 *
 * @returns a, b, c, d, e, f as CanvasRenderingContext2D.setTransform takes them, or null
 *   for a quad without area.
 */
export function rectifyingTransform([topLeft, topRight, , bottomLeft], { x, y, width, height }) {
  const [ux, uy] = [topRight[0] - topLeft[0], topRight[1] - topLeft[1]];
  const [vx, vy] = [bottomLeft[0] - topLeft[0], bottomLeft[1] - topLeft[1]];
  const area = ux * vy - uy * vx;
  if (Math.abs(area) < 1) return null;
  const [a, c] = [(width * vy) / area, (-width * vx) / area];
  const [b, d] = [(-height * uy) / area, (height * ux) / area];
  const e = x - a * topLeft[0] - c * topLeft[1];
  const f = y - b * topLeft[0] - d * topLeft[1];
  return [a, b, c, d, e, f];
}

/** Draw a plate rectified, on a canvas that gets its aspect ratio; false if the quad has no area. */
export function drawRectified(canvas, image, quad) {
  const margin = HEIGHT * MARGIN;
  const inside = HEIGHT - 2 * margin;
  canvas.height = HEIGHT;
  canvas.width = Math.round(inside * aspectOf(quad) + 2 * margin);
  const target = { x: margin, y: margin, width: canvas.width - 2 * margin, height: inside };
  const transform = rectifyingTransform(quad, target);
  // Drawn by the CPU, as WebKitGTK without a GPU smears a picture of which only a part is visible.
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!transform) return false;
  context.imageSmoothingQuality = "high";
  context.setTransform(...transform);
  context.drawImage(image, 0, 0);
  return true;
}
