// Makes elements of the document. Strings become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** Write a status only if it has changed, as screen readers announce each write. */
export function say(id, words) {
  if (byId(id).textContent !== words) byId(id).textContent = words;
}

/** Make an HTML element; `on…` attributes are listeners, null and false ones are omitted. */
export function element(tag, attributes = {}, ...children) {
  return finished(document.createElement(tag), attributes, children);
}

/** Make an SVG element in the same way. */
export function drawn(tag, attributes = {}, ...children) {
  return finished(document.createElementNS(SVG, tag), attributes, children);
}

function finished(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
