// Requests to the service. An error is the sentence that it says.

import { state } from "./state.js";

const NOT_ASCII = "A token has ASCII characters alone: letters of English, digits and signs.";
const WRONG = "That token is not the one of this service.";
let token = sessionStorage.getItem("mue-token");

const isAscii = (text) => /^[\x20-\x7e]*$/.test(text); // a header takes nothing else
const mebibytes = (bytes) => (bytes / 2 ** 20).toFixed(0);
const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

async function askToken() {
  const dialog = document.getElementById("ask");
  const note = document.getElementById("ask-note");
  do {
    note.hidden = !token;
    note.textContent = isAscii(token || "") ? WRONG : NOT_ASCII;
    if (!dialog.open) dialog.showModal(); // two requests may ask
    await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
    token = document.getElementById("token").value.trim();
  } while (!isAscii(token));
  sessionStorage.setItem("mue-token", token);
}

// A browser that cannot read a file any more says the same as where there is no service.
async function checkReadable(form) {
  for (const file of form?.getAll("file") || []) {
    try {
      await file.slice(0, 1).arrayBuffer();
    } catch {
      throw new Error(`${file.name} was changed or removed since it was chosen; choose it again`);
    }
  }
}

async function request(path, options = {}) {
  for (;;) {
    if (token && !isAscii(token)) await askToken();
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      await checkReadable(options.body);
      throw new Error("the service cannot be reached; it may be restarting");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      await askToken();
      continue;
    }
    if (response.status === 503 && !options.method) { // the models are loading
      await wait(Number(response.headers.get("Retry-After")) || 1);
      continue;
    }
    const said = await response.json().catch(() => ({}));
    throw new Error(said.error || `the service answered ${response.status}`);
  }
}

export const models = async () => (await request("/api/models")).json();
export const inputs = async () => (await request("/api/inputs")).json();
export const examples = async () => (await request("/api/examples")).json();
export const digit = async (label, index) => (await request(`/api/digits/${label}/${index}`)).blob();

function form(files, values) {
  const size = files.reduce((sum, file) => sum + file.size, 0);
  if (size > state.inputs.bytes) {
    const what = files.length > 1 ? `these ${files.length} files have` : "this one has";
    throw new Error(`an upload may have ${mebibytes(state.inputs.bytes)} MiB, ${what} ${mebibytes(size)}`);
  }
  const body = new FormData();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined) body.set(name, value);
  }
  for (const file of files) body.append("file", file, file.name || "image.png");
  return body;
}

export async function propose(files, values, signal) {
  const body = form(files, { details: true, k: 4096, ...values });
  return (await request("/api/propose", { method: "POST", body, signal })).json();
}

export async function exported(files, values) {
  return (await request("/api/export", { method: "POST", body: form(files, values) })).blob();
}
