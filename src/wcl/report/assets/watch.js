"use strict";
// The live page: asks its server every two seconds for the state of the run.

const SECONDS = 2;
const token = new URLSearchParams(location.search).get("token");
const element = (id) => document.getElementById(id);
const { page: pageVersion } = JSON.parse(element("data").textContent);
let version = "", neighborsOf = 0;

function ask(path, options = {}) {
  return fetch(path, { ...options, headers: { "X-WCL-Token": token } });
}

/** Redraw the charts; the one that has the focus keeps it. */
function redraw(state) {
  const charts = () => [...document.querySelectorAll("figure.chart")];
  const before = charts().findIndex((chart) => chart.contains(document.activeElement));
  drawCharts(state);
  if (before >= 0) charts()[before]?.querySelector("svg").focus({ preventScroll: true });
}

async function showNeighbors(changed) {
  if (!changed || changed === neighborsOf) return;
  neighborsOf = changed;
  const answer = await ask("/neighbors");
  if (!answer.ok) return;
  const image = make("img", { class: "sheet", alt: "Some images of the run, each with its nearest neighbors" });
  image.src = URL.createObjectURL(await answer.blob());
  image.addEventListener("load", () => URL.revokeObjectURL(image.src));
  element("neighbors").replaceChildren(image);
}

async function update() {
  if (document.hidden) return;
  try {
    const answer = await ask(`/state?version=${encodeURIComponent(version)}`);
    if (!answer.ok) throw new Error(await answer.text());
    const state = await answer.json();
    if (state.page !== pageVersion) return location.reload();
    element("status").textContent = state.status;
    element("progress").value = state.progress ?? 0;
    element("stop").hidden = !state.stoppable;
    if (!state.training) element("stop").disabled = false;
    if (state.charts) redraw(state);
    version = state.version ?? "";
    await showNeighbors(state.neighbors);
  } catch {
    element("status").textContent = "wcl watch has ended or cannot read the run; these are the last curves it sent.";
    element("stop").hidden = true;
  }
}

element("stop").addEventListener("click", async () => {
  if (!confirm("Stop the run after this step? It saves a checkpoint; continue it later with --resume.")) return;
  element("stop").disabled = true;
  element("status").textContent = "stopping …";
  const answer = await ask("/stop", { method: "POST" });
  element("status").textContent = answer.ok ? (await answer.json()).status : await answer.text();
});

/** Ask again and again, but use only a small share of the machine, which the run needs. */
async function follow() {
  const began = performance.now();
  await update();
  setTimeout(follow, Math.max(SECONDS * 1000, 20 * (performance.now() - began)));
}
follow();
