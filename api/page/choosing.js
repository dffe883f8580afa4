// The ways a photo comes in: chosen, taken, dropped, pasted, or our sample.

import { byId } from "./elements.js";

/** Call `take` with a list of files, whichever way they come. */
export function takesPhotos(take) {
  for (const id of ["choose", "camera"]) {
    const input = byId(id);
    input.addEventListener("change", () => {
      take([...input.files]);
      input.value = ""; // So that the same file can be chosen again.
    });
  }
  byId("sample").addEventListener("click", async () => take([await sample()]));
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    take(files);
  });
  takesDrops(take);
}

async function sample() {
  const response = await fetch(new URL("page/sample.jpg", document.baseURI));
  return new File([await response.blob()], "sample.jpg", { type: "image/jpeg" });
}

/** Anywhere on the page will do: whoever misses would lose the page to the photo. */
function takesDrops(take) {
  let depth = 0; // Enter and leave come for every element on the way.
  const dragging = (change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle("dragging", depth > 0);
  };
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  const on = (name, react) => document.addEventListener(name, (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    react(event);
  });
  on("dragenter", () => dragging(1));
  on("dragleave", () => dragging(-1));
  on("dragover", (event) => { event.dataTransfer.dropEffect = "copy"; });
  on("drop", (event) => {
    dragging(-depth);
    take([...event.dataTransfer.files]);
  });
}
