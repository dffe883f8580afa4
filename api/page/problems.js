// What is shown when there is no answer: what happened, what to do, and when to try again.

import { byId, element } from "./elements.js";
import { chosenLanguage, hasText, text } from "./texts.js";

const MAY_PASS = new Set([0, 408, 429, 500, 503, 504]);
const TOKEN_WANTED = new Set([401, 403]);

let countdown = null;

/** Take the message away. */
export function clearProblem() {
  clearInterval(countdown);
  byId("problem").hidden = true;
  byId("problem-words").replaceChildren();
  byId("problem-actions").replaceChildren();
  byId("token-form").hidden = true;
}

/** Show why there are no plates, with a button to try again where that may help. */
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
  // Outside the alert, which would be read out with every second that passes.
  if (MAY_PASS.has(refusal.status)) byId("problem-actions").append(retryButton(refusal, retry));
}

/** The server speaks English; in other languages its words are marked as such. */
function serverWords({ detail, instance }) {
  const words = element("span", { lang: "en" }, detail);
  const intro = chosenLanguage() === "en" ? "" : `${text("server_says")} `;
  return [
    ...(detail ? [element("p", { class: "detail" }, intro, words)] : []),
    ...(instance ? [element("p", { class: "instance" }, element("code", {}, instance))] : []),
  ];
}

/** Retry-After counts down on the button, which can be pressed when it is over. */
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
