// Pixels: decoding of what the service sends, and drawing of images, outlines and maps.

const ARRAYS = {
  uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array, int32: Int32Array, float32: Float32Array,
};
export const COLOURS = [
  "#22d3ee", "#fb923c", "#a3e635", "#f472b6", "#facc15", "#a78bfa", "#34d399", "#f87171", "#60a5fa",
];
export const colour = (rank) => COLOURS[rank % COLOURS.length];

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export function canvas(width, height) {
  return Object.assign(document.createElement("canvas"), { width, height });
}

// The grey values of a PNG in base64.
export async function grey(png) {
  const picture = await createImageBitmap(new Blob([bytes(png)], { type: "image/png" }));
  const context = canvas(picture.width, picture.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  const rgba = context.getImageData(0, 0, picture.width, picture.height).data;
  const values = new Uint8Array(picture.width * picture.height);
  for (let i = 0; i < values.length; i += 1) values[i] = rgba[4 * i];
  return { values, width: picture.width, height: picture.height };
}

export function pixels(image) {
  const raw = bytes(image.values);
  const values = new ARRAYS[image.dtype](raw.buffer);
  return { ...image, values };
}

// An image with grey values between low and high.
export function windowed(image, low, high) {
  const { width, height, channels, values } = image;
  const target = canvas(width, height);
  const context = target.getContext("2d");
  const data = context.createImageData(width, height);
  const scale = 255 / Math.max(high - low, 1e-9);
  for (let i = 0; i < width * height; i += 1) {
    for (let c = 0; c < 3; c += 1) {
      data.data[4 * i + c] = (values[i * channels + (channels >= 3 ? c : 0)] - low) * scale;
    }
    data.data[4 * i + 3] = 255;
  }
  context.putImageData(data, 0, 0);
  return target;
}

// Where a mask ends: closed lines between the centres of pixels, by marching squares.
export function outline(mask, labels = false) {
  const { width, height } = mask;
  const at = (x, y) => {
    if (x < 0 || y < 0 || x >= width || y >= height) return 0;
    const value = mask.values[y * width + x];
    return labels ? (value > 0 ? 255 : 0) : value;
  };
  const cross = (a, b) => (127.5 - a) / (b - a);
  const ends = new Map(); // an edge between two centres that the line crosses: where, and what is next
  const join = (p, q) => {
    for (const [one, other] of [[p, q], [q, p]]) {
      if (!ends.has(one.edge)) ends.set(one.edge, { ...one, next: [] });
      ends.get(one.edge).next.push(other.edge);
    }
  };
  for (let y = -1; y < height; y += 1) {
    for (let x = -1; x < width; x += 1) {
      const [a, b, c, d] = [at(x, y), at(x + 1, y), at(x + 1, y + 1), at(x, y + 1)];
      const kind = (a > 127) + 2 * (b > 127) + 4 * (c > 127) + 8 * (d > 127);
      if (kind === 0 || kind === 15) continue;
      const edge = 2 * ((y + 1) * (width + 2) + x + 1); // of the top; the next one is of the left
      const top = { edge, x: x + 0.5 + cross(a, b), y: y + 0.5 };
      const left = { edge: edge + 1, x: x + 0.5, y: y + 0.5 + cross(a, d) };
      const right = { edge: edge + 3, x: x + 1.5, y: y + 0.5 + cross(b, c) };
      const bottom = { edge: edge + 2 * (width + 2), x: x + 0.5 + cross(d, c), y: y + 1.5 };
      if (kind === 5) { join(left, bottom); join(top, right); }
      else if (kind === 10) { join(left, top); join(right, bottom); }
      else if (kind === 1 || kind === 14) join(left, top);
      else if (kind === 2 || kind === 13) join(top, right);
      else if (kind === 3 || kind === 12) join(left, right);
      else if (kind === 4 || kind === 11) join(right, bottom);
      else if (kind === 6 || kind === 9) join(top, bottom);
      else join(left, bottom);
    }
  }
  const path = new Path2D();
  for (let point of ends.values()) {
    if (!point.next.length) continue;
    path.moveTo(point.x, point.y);
    while (point.next.length) {
      const after = ends.get(point.next.pop());
      after.next.splice(after.next.indexOf(point.edge), 1);
      path.lineTo(after.x, after.y);
      point = after;
    }
    path.closePath();
  }
  return path;
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// A mask as a picture of one colour; of several classes, each has its own.
export function filled(mask, hex, labels = false) {
  const target = canvas(mask.width, mask.height);
  const context = target.getContext("2d");
  const data = context.createImageData(mask.width, mask.height);
  mask.values.forEach((value, i) => {
    if (labels ? value === 0 : value <= 127) return;
    data.data.set([...rgb(labels ? colour(value - 1) : hex), 255], 4 * i);
  });
  context.putImageData(data, 0, 0);
  return target;
}

const HEAT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

// A map of values in 0..1 in colours; 0 is transparent.
export function heat(values, width, height) {
  const target = canvas(width, height);
  const context = target.getContext("2d");
  const data = context.createImageData(width, height);
  values.forEach((value, i) => {
    if (value < 0.02) return;
    const place = Math.min(value, 0.999) * (HEAT.length - 1);
    const [low, share] = [Math.floor(place), place % 1];
    const mix = HEAT[low].map((v, c) => v + share * (HEAT[low + 1][c] - v));
    data.data.set([...mix, 255 * Math.min(1, value * 4)], 4 * i);
  });
  context.putImageData(data, 0, 0);
  return target;
}

// The mean of all answers, and how far they disagree: e (1 - e), 1 where half says yes.
export function expected(masks, probs, labels) {
  const total = probs.reduce((sum, p) => sum + p, 0);
  const mean = new Float32Array(masks[0].values.length);
  const share = new Float32Array(mean.length);
  masks.forEach((mask, k) => {
    const p = probs[k] / total;
    for (let i = 0; i < mean.length; i += 1) {
      const value = mask.values[i];
      mean[i] += p * (labels ? (value > 0 ? 1 : 0) : value / 255);
      if (labels ? value > 0 : value > 127) share[i] += p;
    }
  });
  return { mean, disagreement: share.map((e) => 4 * e * (1 - e)) };
}

export const area = (mask, labels) =>
  mask.values.reduce((sum, value) => sum + (labels ? value > 0 : value > 127), 0);
