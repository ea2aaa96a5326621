// The images to choose from: examples, and what is dropped on the page.

import { answer, choose, exampleSource } from "./answers.js";
import * as draw from "./canvas.js";
import { $, element, fail } from "./dom.js";
import { panes, state, update } from "./state.js";

const TITLES = { slices: ["Lung lesions", "computed phantoms"], guess: ["Guessing game", "which digit is kept?"] };

export function listExamples() {
  const groups = Object.entries(TITLES).map(([task, [title, note]]) => {
    const items = state.examples.filter((e) => e.task === task).map((e) => element("button", {
      class: "example", title: e.note, "data-example": e.id, "aria-pressed": "false",
      onclick: () => choose(exampleSource(e)),
    }, element("img", { src: `data:image/png;base64,${e.image}`, alt: "" }), element("span", {}, e.name)));
    if (!items.length) return null;
    return element("div", {}, element("h2", {}, title, element("small", {}, note)), element("div", { class: `grid ${task}` }, ...items));
  });
  $("examples").replaceChildren(...groups.filter(Boolean));
}

// What a visitor has dropped, to go back to; the files stay in this tab.
const MAX_UPLOADS = 6;
const uploads = [];
let count = 0;

function listUploads() {
  const { source, image } = panes[0];
  if (source.kind !== "files" || uploads.includes(source)) return;
  source.picture = draw.windowed(image, ...image.window);
  uploads.splice(MAX_UPLOADS - 1);
  uploads.unshift(source);
  const items = uploads.map((each) => element("button", {
    class: "example", title: each.name, "data-example": each.id, onclick: () => choose(each),
  }, each.picture, element("span", {}, each.name)));
  $("uploads")?.remove();
  $("examples").prepend(element("div", { id: "uploads" },
    element("h2", {}, "Your images", element("small", {}, "in this tab alone")), element("div", { class: "grid" }, ...items)));
}

export function markExample() {
  listUploads();
  for (const button of document.querySelectorAll("[data-example]")) {
    button.setAttribute("aria-pressed", String(button.dataset.example === panes[0].source.id));
  }
}

let awaited = null; // the view of a link whose image is not in it
export const awaitUpload = (view) => { awaited = view; };

// Of several files the slices of a series; the folder of one often holds notes as well.
async function slicesOf(files) {
  const dicom = state.inputs.formats.find((each) => each.name === "DICOM");
  if (!dicom) return files; // the models are still loading
  const { at, beginnings: [mark] } = dicom;
  const found = await Promise.all(files.map(async (file) => await file.slice(at, at + mark.length).text() === mark));
  return found.some(Boolean) ? files.filter((_, i) => found[i]) : files;
}

async function upload(all) {
  const given = [...all].filter((f) => !f.name.startsWith(".") && f.name !== "DICOMDIR");
  if (!given.length) throw new Error("there is no file in it");
  if (given.some((f) => /\.zip$/i.test(f.name))) throw new Error("a ZIP is not read; unpack it, and drop the folder");
  const number = count += 1;
  const files = given.length > 1 ? await slicesOf(given) : given;
  if (number !== count) return; // another was dropped meanwhile
  const others = given.length - files.length;
  const name = files.length > 1 ? `Series of ${files.length} files` : files[0].name;
  const note = others ? `${others} that ${others > 1 ? "are" : "is"} not DICOM left out` : "";
  const source = { kind: "files", id: `upload-${number}`, name, note, files, raters: null };
  await choose(source, awaited?.asked);
  if (!awaited || panes[0]?.source !== source) return;
  const { slice, view } = awaited;
  awaited = null;
  update(view);
  if (slice) await answer({ slice: Math.min(slice, panes[0].image.slices) - 1 });
}

async function filesIn(entry) {
  if (entry.isFile) return [await new Promise((done, wrong) => entry.file(done, wrong))];
  const reader = entry.createReader();
  const found = [];
  for (;;) { // it hands out some at a time
    const some = await new Promise((done, wrong) => reader.readEntries(done, wrong));
    if (!some.length) break;
    found.push(...some);
  }
  return (await Promise.all(found.map(filesIn))).flat();
}

// What was dropped, with the files of a folder: a DICOM series often is one.
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.());
  if (!entries.some((entry) => entry?.isDirectory)) return transfer.files;
  return (await Promise.all(entries.filter(Boolean).map(filesIn))).flat();
}

$("file").addEventListener("change", (event) => {
  upload(event.target.files).catch(fail);
  event.target.value = "";
});
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("over"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  dropped(event.dataTransfer).then(upload).catch(fail);
});
