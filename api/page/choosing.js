// Input of photos: chosen, taken with the camera, dropped, pasted, or the sample.

import { askPicture } from "./asking.js";
import { byId } from "./elements.js";
import { text } from "./texts.js";

/** Call `take` with each list of files that the user provides. */
export function takesPhotos(take) {
  for (const id of ["choose", "camera"]) {
    const input = byId(id);
    input.addEventListener("change", () => {
      take([...input.files]);
      input.value = ""; // Otherwise choosing the same file again fires no event.
    });
    if (input.files.length) input.dispatchEvent(new Event("change")); // chosen before this script was loaded
  }
  byId("sample").addEventListener("click", async () => {
    const photo = await askPicture("page/sample.jpg").catch(() => null);
    byId("no-sample").textContent = photo ? "" : `${text("problem.0")}. ${text("advice.0")}`;
    if (photo) take([new File([photo], "sample.jpg", { type: "image/jpeg" })]);
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    // Text pasted into a field is no photo, though spreadsheets add a picture of the text.
    if (!files.length || event.target.matches('input:not([type="file"])')) return;
    event.preventDefault();
    take(files);
  });
  takesDrops(take);
}

/** Accept drops on the whole page: after a drop elsewhere the browser would open the photo instead. */
function takesDrops(take) {
  const dragging = (is) => document.body.classList.toggle("dragging", is);
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  const on = (name, react) => document.addEventListener(name, (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    react(event);
  });
  let entered; // the last element entered; WebKit's relatedTarget is always null
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
