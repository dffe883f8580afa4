// The photos of this visit, in memory only, and the queue in which the server reads them.

import { readPlates } from "./asking.js";
import { decoded } from "./stage.js";

const KEPT = 12;

/** Reads photos one after another, and keeps the last few with their results. */
export class Shots {
  /** @param changed called with a shot after each change of it. */
  constructor(changed) {
    this.list = [];
    this.unread = 0; // number of photos discarded before they were read
    this.changed = changed;
    this.turn = Promise.resolve();
  }

  /** Add a file, and read it after those before it. */
  add(file, filter) {
    const shot = {
      file, filter, name: file.name || "photo", url: URL.createObjectURL(file), state: "waiting",
    };
    this.list.push(shot);
    for (const old of this.list.splice(0, this.list.length - KEPT)) this.forget(old);
    this.read(shot);
    return shot;
  }

  /** Queue a shot for reading, even if it was read before. */
  read(shot) {
    shot.controller?.abort();
    const controller = new AbortController();
    Object.assign(shot, { controller, state: "waiting", problem: null });
    this.turn = this.turn.then(() => this.takeTurn(shot, controller));
  }

  cancel(shot) {
    shot.controller.abort();
    shot.state = "cancelled";
    this.changed(shot);
  }

  forget(shot) {
    if (shot.state === "waiting" || shot.state === "working") this.unread += 1;
    shot.controller.abort();
    URL.revokeObjectURL(shot.url);
  }

  async takeTurn(shot, controller) {
    if (controller.signal.aborted) return;
    this.enter(shot, { state: "working" });
    if (shot.image === undefined) shot.image = await decoded(shot.url);
    if (controller.signal.aborted) return;
    this.changed(shot);
    const news = await outcome(shot, controller.signal);
    // Ignore the outcome if the shot was cancelled or queued again meanwhile.
    if (!controller.signal.aborted) this.enter(shot, news);
  }

  enter(shot, news) {
    Object.assign(shot, news);
    this.changed(shot);
  }
}

async function outcome(shot, signal) {
  const started = performance.now();
  try {
    const answer = await readPlates(shot.file, shot.filter, signal);
    return { state: "done", answer, elapsedMs: performance.now() - started };
  } catch (problem) {
    return { state: "failed", problem, answer: null };
  }
}
