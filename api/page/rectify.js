// Straight pictures of plates, cut from the photo.

const HEIGHT = 192; // Of the picture in its own pixels: enough for sharp displays.
const MARGIN = 0.06; // Of the plate's height, on each side: the rim shows that nothing is cut.
const MIN_ASPECT = 0.5;
const MAX_ASPECT = 8;

const distance = ([x0, y0], [x1, y1]) => Math.hypot(x1 - x0, y1 - y0);

/** Width over height of a plate. */
export function aspectOf([topLeft, topRight, , bottomLeft]) {
  const ratio = distance(topLeft, topRight) / distance(topLeft, bottomLeft);
  return Math.min(MAX_ASPECT, Math.max(MIN_ASPECT, ratio || 1));
}

/**
 * The affine map that takes a quad's corners to those of an upright rectangle.
 *
 * A quad is a parallelogram (the rectifier's theta is affine), so three of its corners say
 * everything. With u and v its sides: x = (p - topLeft) expressed in u and v, stretched.
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

/** Draw a plate straight, filling a canvas that takes the plate's shape. */
export function drawRectified(canvas, image, quad) {
  const margin = HEIGHT * MARGIN;
  const inside = HEIGHT - 2 * margin;
  canvas.height = HEIGHT;
  canvas.width = Math.round(inside * aspectOf(quad) + 2 * margin);
  const target = { x: margin, y: margin, width: canvas.width - 2 * margin, height: inside };
  const transform = rectifyingTransform(quad, target);
  const context = canvas.getContext("2d");
  if (!transform) return false;
  context.imageSmoothingQuality = "high";
  context.setTransform(...transform);
  context.drawImage(image, 0, 0);
  return true;
}
