// The results of one photo: status, plates, problem, JSON and command.

import { card } from "./cards.js";
import { curlCommand, prettyJson } from "./copying.js";
import { byId, element, say } from "./elements.js";
import { clearProblem, showProblem } from "./problems.js";
import { matchingImage } from "./stage.js";
import { counted, number, text } from "./texts.js";

const HASH_LENGTH = 8;

/** Show a shot's state and, if it has one, its answer. */
export function showResults(shot, retry) {
  say("status", statusOf(shot));
  if (shot.state === "failed") showProblem(shot.problem, retry);
  else clearProblem();
  const answer = shot.state === "done" ? shot.answer : null;
  byId("plates").replaceChildren(
    ...(answer?.plates ?? []).map((plate, index) => card(plate, index, matchingImage(shot))),
    ...(answer?.plates.length === 0 ? [nothing(shot)] : []),
  );
  byId("plates").classList.toggle("pending", shot.state === "working");
  byId("afterwards").hidden = !answer;
  if (answer) showAfterwards(shot, answer);
}

function nothing({ filter }) {
  const filtered = filter.roi || filter.minWidth;
  return element("li", { class: "nothing" }, text(filtered ? "none_filtered" : "none_advice"));
}

function statusOf({ state, name, answer }) {
  if (state === "done" && answer.plates.length === 0) return text("none");
  if (state === "done") return found(answer.plates);
  return state === "failed" ? "" : text(state, { name });
}

function found(plates) {
  const texts = plates.map((plate) => plate.text || text("unreadable_mark")).join(", ");
  return counted("found", plates.length, { texts });
}

function showAfterwards(shot, answer) {
  const weights = answer.model.weights.replace(/^sha256:/, "");
  byId("made-by").textContent = text("made_by", {
    read: number(answer.timing_ms.total),
    total: number(shot.elapsedMs),
    version: answer.model.version,
    device: answer.model.device,
    weights: weights.slice(0, HASH_LENGTH),
  });
  byId("made-by").title = answer.model.weights;
  byId("json").textContent = prettyJson(answer);
  byId("curl").textContent = curlCommand(shot.name, shot.filter);
}
