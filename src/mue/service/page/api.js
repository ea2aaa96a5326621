// Requests to the service. An error is the sentence that it says.

const MAX_BYTES = 32 * 2 ** 20;
let token = sessionStorage.getItem("mue-token");

async function askToken() {
  const dialog = document.getElementById("ask");
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  token = document.getElementById("token").value;
  sessionStorage.setItem("mue-token", token);
}

async function request(path, options = {}) {
  for (;;) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("the service cannot be reached; it may be restarting");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      await askToken();
      continue;
    }
    const said = await response.json().catch(() => ({}));
    throw new Error(said.error || `the service answered ${response.status}`);
  }
}

export const models = async () => (await request("/api/models")).json();
export const examples = async () => (await request("/api/examples")).json();
export const digit = async (label, index) => (await request(`/api/digits/${label}/${index}`)).blob();

function form(file, values) {
  if (file.size > MAX_BYTES) {
    throw new Error(`an image may have 32 MiB, this one has ${(file.size / 2 ** 20).toFixed(0)}`);
  }
  const body = new FormData();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined) body.set(name, value);
  }
  body.set("file", file, file.name || "image.png");
  return body;
}

export async function propose(file, values, signal) {
  const body = form(file, { details: true, k: 4096, ...values });
  return (await request("/api/propose", { method: "POST", body, signal })).json();
}

export async function exported(file, values) {
  return (await request("/api/export", { method: "POST", body: form(file, values) })).blob();
}
