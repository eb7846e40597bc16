"use strict";
// The live page: asks its own server every two seconds how far the run is.

const SECONDS = 2;
const secret = new URLSearchParams(location.search).get("token");
const element = (id) => document.getElementById(id);
const { made_of: madeOf } = JSON.parse(element("data").textContent);
let version = "", pictureOf = 0;

function ask(path, options = {}) {
  return fetch(path, { ...options, headers: { "X-WCL-Token": secret } });
}

/** The charts anew; the one that is being read stays the one that is being read. */
function redraw(state) {
  const before = [...element("charts").children].findIndex((chart) => chart.contains(document.activeElement));
  drawCharts(state);
  if (before >= 0) element("charts").children[before]?.querySelector("svg").focus({ preventScroll: true });
}

async function showNeighbors(changed) {
  if (!changed || changed === pictureOf) return;
  pictureOf = changed;
  const answer = await ask("/neighbors.png");
  if (!answer.ok) return;
  const image = make("img", { class: "sheet", alt: "Some images of the run, each with its nearest neighbors" });
  image.src = URL.createObjectURL(await answer.blob());
  image.addEventListener("load", () => URL.revokeObjectURL(image.src));
  element("neighbors").replaceChildren(image);
}

async function look() {
  if (document.hidden) return;
  try {
    const answer = await ask(`/state?version=${encodeURIComponent(version)}`);
    if (!answer.ok) throw new Error(await answer.text());
    const state = await answer.json();
    if (state.made_of !== madeOf) return location.reload();
    element("said").textContent = state.said;
    element("done").value = state.done;
    element("stop").hidden = !state.stoppable;
    if (!state.training) element("stop").disabled = false;
    if (state.charts) redraw(state);
    version = state.version;
    await showNeighbors(state.neighbors);
  } catch {
    element("said").textContent = "wcl watch has ended, or cannot read the run; the curves are the last ones seen.";
    element("stop").hidden = true;
  }
}

element("stop").addEventListener("click", async () => {
  if (!confirm("Stop the run after this step? It saves itself, and goes on later with --resume.")) return;
  element("stop").disabled = true;
  element("said").textContent = "asking it to stop …";
  const answer = await ask("/stop", { method: "POST" });
  element("said").textContent = answer.ok ? (await answer.json()).said : await answer.text();
});

/** Look again and again, but spend only a small part of the time on it: the run needs the machine. */
async function follow() {
  const began = performance.now();
  await look();
  setTimeout(follow, Math.max(SECONDS * 1000, 20 * (performance.now() - began)));
}
follow();
