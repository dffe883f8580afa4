// The ways a photo comes in: chosen, taken, dropped, pasted, or our sample.

import { askPicture } from "./asking.js";
import { byId } from "./elements.js";
import { text } from "./texts.js";

/** Call `take` with a list of files, whichever way they come. */
export function takesPhotos(take) {
  for (const id of ["choose", "camera"]) {
    const input = byId(id);
    input.addEventListener("change", () => {
      take([...input.files]);
      input.value = ""; // So that the same file can be chosen again.
    });
    if (input.files.length) input.dispatchEvent(new Event("change")); // before this script came
  }
  byId("sample").addEventListener("click", async () => {
    const photo = await askPicture("page/sample.jpg").catch(() => null);
    byId("no-sample").textContent = photo ? "" : `${text("problem.0")}. ${text("advice.0")}`;
    if (photo) take([new File([photo], "sample.jpg", { type: "image/jpeg" })]);
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    // What is pasted into a field is text; spreadsheets add a picture of it.
    if (!files.length || event.target.matches('input:not([type="file"])')) return;
    event.preventDefault();
    take(files);
  });
  takesDrops(take);
}

/** Anywhere on the page will do: whoever misses would lose the page to the photo. */
function takesDrops(take) {
  const dragging = (is) => document.body.classList.toggle("dragging", is);
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  const on = (name, react) => document.addEventListener(name, (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    react(event);
  });
  let entered; // Not relatedTarget: in WebKit it is always null.
  on("dragenter", (event) => { entered = event.target; });
  on("dragleave", (event) => dragging(event.target !== entered));
  on("dragover", (event) => {
    dragging(true);
    event.dataTransfer.dropEffect = "copy";
  });
  on("drop", (event) => {
    dragging(false);
    take([...event.dataTransfer.files]);
  });
}
