// The listings to copy: the answer as JSON, and the curl command for it.

import { ADDRESS, filterFields, hasToken } from "./asking.js";
import { byId, element } from "./elements.js";
import { text } from "./texts.js";

const LINE = 76;
const NOTICE_MS = 2000;

/** Format JSON with short lists and objects on one line. */
export function prettyJson(value, indent = "") {
  const flat = oneLine(value);
  if (typeof value !== "object" || indent.length + flat.length <= LINE) return flat;
  const deeper = `${indent}  `;
  const items = members(value, (item) => prettyJson(item, deeper)).map((item) => deeper + item);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return `${open}\n${items.join(",\n")}\n${indent}${close}`;
}

function oneLine(value) {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return open + members(value, oneLine).join(", ") + close;
}

function members(value, written) {
  if (Array.isArray(value)) return value.map(written);
  return Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${written(item)}`);
}

/** The curl command for the same request; the token is a shell variable, never its value. */
export function curlCommand(fileName, filter) {
  const fields = Object.entries(filterFields(filter)).map(([name, value]) => `${name}=${value}`);
  const words = [`image=@${curlFile(fileName)}`, ...fields].map((field) => `-F ${shell(field)}`);
  const header = hasToken() ? ['-H "Authorization: Bearer $PLATES_TOKEN"'] : [];
  return ["curl", ...header, ...words, shell(ADDRESS)].join(" ");
}

/** Quote a file name for curl's -F, which interprets `;` and `,`, and a lone - as standard input. */
function curlFile(name) {
  const path = name.startsWith("-") ? `./${name}` : name;
  if (/^[^;,"\\\s]+$/.test(path)) return path;
  return `"${path.replace(/[\\"]/g, "\\$&")}"`;
}

/** Quote a word for a POSIX shell. */
export function shell(word) {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** Make a button copy what `content` returns; its label then shows whether this succeeded. */
export function copies(button, content) {
  button.addEventListener("click", async () => {
    const done = await copied(content());
    byId("notice").textContent = button.textContent = text(done ? "copied" : "not_copied");
    setTimeout(() => {
      byId("notice").textContent = "";
      button.textContent = text("copy");
    }, NOTICE_MS);
  });
  return button;
}

async function copied(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    return copiedByHand(words);
  }
}

/** Copy with the old execCommand, as the clipboard API is not available over plain HTTP. */
function copiedByHand(words) {
  const before = document.activeElement;
  const area = element("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = words;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  return done;
}
