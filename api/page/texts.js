// The page's language, and texts in it.

import english from "./english.js";
import russian from "./russian.js";

export const TEXTS = { en: english, ru: russian };
const LEAST = 0.0001;
const KEPT_AS = "plates.language";

let language = startingLanguage();

function startingLanguage() {
  const wanted = [kept(), ...(navigator.languages ?? [navigator.language])];
  const known = wanted.map((name) => String(name).slice(0, 2)).filter((name) => name in TEXTS);
  return known[0] ?? "en";
}

function kept() {
  try {
    return localStorage.getItem(KEPT_AS);
  } catch {
    return null; // Storage is disabled: use the browser's language.
  }
}

export const chosenLanguage = () => language;

/** Switch the language, and remember it if the browser allows this. */
export function chooseLanguage(name) {
  language = name;
  try {
    localStorage.setItem(KEPT_AS, name);
  } catch {
    // Storage is disabled: the language applies until the page is closed.
  }
  translate();
}

/** Get a text; each `{name}` in it is replaced by that value. */
export function text(key, values = {}) {
  return (TEXTS[language][key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

export const hasText = (key) => key in TEXTS[language];

/** Get the text for a count, by the language's plural rules. */
export function counted(key, count, values = {}) {
  const rule = new Intl.PluralRules(language).select(count);
  return text(`${key}.${rule}`, { ...values, count: number(count) });
}

export function number(value, digits = 0) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(value);
}

/** Format a probability in [0, 1] as a percentage, rounded down: 99.99 % is not certainty. */
export function percent(score, digits = 0) {
  const scale = 10 ** (2 + digits);
  const cut = Math.floor(score * scale + 1e-6) / scale;
  const style = { style: "percent", maximumFractionDigits: digits };
  return new Intl.NumberFormat(language, style).format(cut);
}

/** Format a score that is often close to 0 as a percentage. */
export function smallPercent(score) {
  // The server rounds scores to four digits, so its 0 only means less than LEAST.
  return score < LEAST ? `< ${percent(LEAST, 2)}` : percent(score, 2);
}

/** Write all fixed texts of the document in the chosen language. */
export function translate() {
  document.documentElement.lang = language;
  document.title = text("title");
  for (const node of document.querySelectorAll("[data-text]")) {
    node.textContent = text(node.dataset.text);
  }
  for (const node of document.querySelectorAll("[data-label]")) {
    node.setAttribute("aria-label", text(node.dataset.label));
  }
  for (const node of document.querySelectorAll("[data-language]")) {
    node.setAttribute("aria-pressed", String(node.dataset.language === language));
  }
}
