// Error messages: what happened, what to do, and when to try again.

import { byId, element } from "./elements.js";
import { chosenLanguage, hasText, text } from "./texts.js";

const MAY_PASS = new Set([0, 408, 429, 500, 503, 504]);
const TOKEN_WANTED = new Set([401, 403]);

let countdown = null;

/** Remove the message. */
export function clearProblem() {
  clearInterval(countdown);
  byId("problem").hidden = true;
  byId("problem-words").replaceChildren();
  byId("problem-actions").replaceChildren();
  byId("token-form").hidden = true;
}

/** Show an error, with a button to try again if that may help. */
export function showProblem(refusal, retry) {
  clearProblem();
  const key = hasText(`problem.${refusal.status}`) ? refusal.status : "other";
  byId("token-form").hidden = !TOKEN_WANTED.has(refusal.status);
  byId("problem").hidden = false;
  byId("problem-words").append(
    element("h3", {}, text(`problem.${key}`)),
    element("p", {}, text(`advice.${key}`)),
    ...serverWords(refusal),
  );
  // Outside the alert: screen readers would announce each second of the countdown.
  if (MAY_PASS.has(refusal.status)) byId("problem-actions").append(retryButton(refusal, retry));
}

/** The server's message, which is always in English, marked as such for other languages. */
function serverWords({ detail, instance }) {
  const words = element("span", { lang: "en" }, detail);
  const intro = chosenLanguage() === "en" ? "" : `${text("server_says")} `;
  return [
    ...(detail ? [element("p", { class: "detail" }, intro, words)] : []),
    ...(instance ? [element("p", { class: "instance" }, element("code", {}, instance))] : []),
  ];
}

/** A button that shows a countdown of Retry-After, and is disabled until its end. */
function retryButton({ retryAt }, retry) {
  const button = element("button", { type: "button", class: "primary", onclick: retry });
  const tick = () => {
    const seconds = Math.ceil((retryAt - performance.now()) / 1000);
    button.disabled = seconds > 0;
    button.textContent = seconds > 0 ? text("retry_in", { seconds }) : text("retry");
    if (seconds <= 0) clearInterval(countdown);
  };
  countdown = setInterval(tick, 200);
  tick();
  return button;
}
