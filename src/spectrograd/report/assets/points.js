// The nodes: arrays decoded once, gathered per group when first drawn, and kept.
const report = JSON.parse(document.getElementById("report-data").textContent);
const points = report.points;

function bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const array = new Uint8Array(binary.length);
  for (let i = 0; i < array.length; i++) array[i] = binary.charCodeAt(i);
  return array;
}

const total = points.names.length;
const columns = points.columns.map(({ name, data }) => ({ name, values: new Float32Array(bytes(data).buffer) }));
const scores = points.scores.map(({ name, title, data }) => ({ name, title, values: Float32Array.from(bytes(data), (v) => v / 255) }));
const groupings = points.groups.map(({ title, names, codes, missing }) => {
  const code = bytes(codes);
  const members = names.map(() => []);
  code.forEach((value, node) => members[value].push(node));
  return { title, names, code, missing, members: members.map((list) => Int32Array.from(list)) };
});
const edges = new Int32Array(bytes(points.edges).buffer);
const everyone = Int32Array.from({ length: total }, (_, node) => node);

// Plotly reads a little HTML in texts; a node's name is none.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const hoverNames = points.names.map(plain);

const kept = new Map();
function once(key, make) {
  if (!kept.has(key)) kept.set(key, make());
  return kept.get(key);
}

// The values of some nodes, of the same kind of array.
function gather(values, nodes) {
  if (nodes === everyone) return values;
  const out = new values.constructor(nodes.length);
  for (let i = 0; i < nodes.length; i++) out[i] = values[nodes[i]];
  return out;
}

const others = (grouping, code) =>
  once(`not ${grouping.title} ${code}`, () => everyone.filter((node) => grouping.code[node] !== code));

// What there is to say of a node, as plain text.
function describe(node) {
  const parts = groupings.map(({ title, names, code }) => `${title} ${names[code[node]]}`);
  parts.push(...scores.map(({ name, values }) => `${name} ${values[node].toFixed(2)}`));
  return [points.names[node], ...parts].join(" · ");
}

function search(text, most = 12) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  search.lower ??= points.names.map((name) => name.toLowerCase());
  const ranks = [[], [], []]; // the name itself, its beginning, anywhere in it
  for (let node = 0; node < total; node++) {
    const at = search.lower[node].indexOf(wanted);
    if (at < 0) continue;
    const rank = at > 0 ? 2 : search.lower[node].length === wanted.length ? 0 : 1;
    if (ranks[rank].length < most) ranks[rank].push(node);
  }
  return ranks.flat().slice(0, most);
}
