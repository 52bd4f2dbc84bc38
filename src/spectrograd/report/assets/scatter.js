// The embedding: one WebGL picture, drawn anew from the state whenever that changes.
const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8B6FD6", "#A6A02A", "#8C564B", "#7C8794"];
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const STEPS = 24;
const scatter = document.getElementById("scatter");
const state = {
  space: false,
  axes: { plane: [...points.axes.plane], space: [...points.axes.space] },
  colour: groupings.length ? "group 0" : columns.length > 1 ? `column ${points.axes.plane[1]}` : "none",
  isolated: null, // a code of the grouping
  found: null, // a node
  printing: false,
};

// Beyond the palette, turns of the golden angle keep neighbours apart.
const paint = (code) => PALETTE[code] ?? `hsl(${((code * 137.508) % 360).toFixed(0)} 60% ${code % 2 ? 42 : 58}%)`;
// Nodes of no cluster, or of no known class, are grey: they are no group.
const paintIn = (grouping, code) => (code === grouping.missing ? tint("--soft") : paint(code));
const isDrawing = (column) => /^(view|layout) /.test(columns[column].name);
const axes = () => state.axes[state.space ? "space" : "plane"];

function colouring() {
  const [kind, number] = state.colour.split(" ");
  if (kind === "group") return { grouping: groupings[number] };
  const grouping = groupings[0] ?? null;
  if (kind === "score") return { grouping, ...scores[number], title: scores[number].name, range: [0, 1] };
  return kind === "column" ? { grouping, ...columns[number], title: columns[number].name } : { grouping };
}

function trace(key, nodes, marker, extra = {}) {
  const [x, y, z] = axes().map((column) =>
    once(`${key} at ${column}`, () => gather(columns[column].values, nodes)));
  return {
    type: state.space ? "scatter3d" : "scattergl", mode: "markers", x, y, ...(state.space ? { z } : {}),
    text: once(`${key} names`, () => gather(hoverNames, nodes)), customdata: nodes,
    marker: { size: pointSize(), opacity: 0.75, line: { width: 0 }, ...marker },
    hovertemplate: "<b>%{text}</b><extra></extra>", ...extra,
  };
}

function pointSize() {
  const size = total > 50_000 ? 2.5 : total > 5_000 ? 4 : 7;
  return state.space ? Math.max(1.5, size * 0.5) : size;
}

function traces() {
  const { grouping, values, title, range } = colouring();
  const alone = state.isolated !== null;
  const drawn = edges.length && axes().every((column) => columns[column].name.startsWith("layout ")) ? [edgeTrace()] : [];
  if (alone) {
    const rest = others(grouping, state.isolated);
    const ghost = { color: tint("--soft"), opacity: 0.12 };
    if (rest.length) drawn.push(trace(`not ${grouping.title} ${state.isolated}`, rest, ghost, { hoverinfo: "skip", hovertemplate: undefined }));
  }
  if (state.colour.startsWith("group")) {
    grouping.members.forEach((nodes, code) => {
      if (!nodes.length || (alone && code !== state.isolated)) return;
      const hover = `<b>%{text}</b><br>${grouping.title} ${plain(grouping.names[code])}<extra></extra>`;
      drawn.push(trace(`${grouping.title} ${code}`, nodes, { color: paintIn(grouping, code) }, { hovertemplate: hover }));
    });
  } else {
    const nodes = alone ? grouping.members[state.isolated] : everyone;
    const key = alone ? `${grouping.title} ${state.isolated}` : "all";
    if (values) drawn.push(...graded(key, nodes, values, title, range));
    else drawn.push(trace(key, nodes, { color: PALETTE[0] }));
  }
  if (state.found !== null) drawn.push(ring(state.found));
  return drawn;
}

// All edges as one broken line.
function edgeTrace() {
  const [x, y] = axes().map((column) => once(`edges at ${column}`, () => {
    const { values } = columns[column];
    const ends = [];
    for (let i = 0; i < edges.length; i += 2) ends.push(values[edges[i]], values[edges[i + 1]], null);
    return ends;
  }));
  const opacity = Math.max(0.15, Math.min(0.7, 600 / edges.length));
  return { type: "scattergl", mode: "lines", x, y, line: { color: tint("--soft"), width: 1 }, opacity, hoverinfo: "skip" };
}

function shade(share) {
  const place = Math.min(share * (VIRIDIS.length - 1), VIRIDIS.length - 1.001);
  const [from, to] = [VIRIDIS[Math.floor(place)], VIRIDIS[Math.floor(place) + 1]];
  return `rgb(${from.map((low, i) => Math.round(low + (to[i] - low) * (place % 1))).join()})`;
}

// A trace of one colour per step: a colour for each of 200,000 points takes Plotly seconds.
function graded(key, nodes, values, title, range) {
  const [low, high] = range ?? once(`range of ${title}`, () => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]));
  const width = (high - low) / STEPS || 1;
  const steps = once(`${key} by ${title}`, () => {
    const lists = Array.from({ length: STEPS }, () => []);
    for (const node of nodes) lists[Math.min(STEPS - 1, Math.floor((values[node] - low) / width))].push(node);
    return lists.map((list) => Int32Array.from(list));
  });
  const drawn = steps.map((some, step) => some.length && trace(`${key} by ${title} ${step}`, some, { color: shade((step + 0.5) / STEPS) },
    { hovertemplate: `<b>%{text}</b><br>${plain(title)} ≈ ${(low + (step + 0.5) * width).toPrecision(2)}<extra></extra>` }));
  return [...drawn.filter(Boolean), colourBar(title, low, high)];
}

// Plotly draws the bar of a trace, so here is one without points.
function colourBar(title, low, high) {
  const colorscale = VIRIDIS.map((_, i) => [i / (VIRIDIS.length - 1), shade(i / (VIRIDIS.length - 1))]);
  const colorbar = { title: { text: plain(title), side: "right" }, thickness: 12, outlinewidth: 0, tickfont: { color: tint("--soft") } };
  return {
    type: state.space ? "scatter3d" : "scatter", mode: "markers", x: [null], y: [null], ...(state.space ? { z: [null] } : {}),
    marker: { color: [low], cmin: low, cmax: high, colorscale, showscale: true, colorbar }, hoverinfo: "skip",
  };
}

function ring(node) {
  const [x, y, z] = axes().map((column) => [columns[column].values[node]]);
  return {
    type: state.space ? "scatter3d" : "scattergl", mode: state.space ? "markers+text" : "markers", x, y, ...(state.space ? { z } : {}),
    text: [hoverNames[node]], textposition: "top center", textfont: { color: tint("--ink"), size: 13 },
    marker: { size: state.space ? 9 : 16, symbol: "circle-open", color: tint("--ink"), line: { width: 3, color: tint("--ink") } },
    hoverinfo: "skip",
  };
}

// In the plane the name stands on a plate: text of its own would drown among the points.
function plate(node) {
  const [x, y] = axes().map((column) => columns[column].values[node]);
  return {
    x, y, text: hoverNames[node], ax: 0, ay: -34, arrowcolor: tint("--ink"), arrowwidth: 1, standoff: 9,
    bgcolor: tint("--back"), bordercolor: tint("--soft"), borderpad: 3, font: { color: tint("--ink"), size: 13 },
  };
}

function scatterLayout() {
  const chosen = axes();
  const axis = (i) => ({ ...axisStyle(), title: { text: columns[chosen[i]].name } });
  const paper = state.printing ? { autosize: false, width: 660, height: 370 } : {}; // as run.css prints it
  const layout = { ...baseLayout(), ...paper, hovermode: "closest", uirevision: chosen.join(), dragmode: state.space ? "orbit" : "pan" };
  if (state.space) return { ...layout, margin: { l: 0, r: 0, t: 0, b: 0 }, scene: { xaxis: axis(0), yaxis: axis(1), zaxis: axis(2) } };
  const annotations = state.found === null ? [] : [plate(state.found)];
  // The view is a drawing to scale; eigenvectors have no common one.
  const drawing = chosen.every(isDrawing);
  return { ...layout, annotations, xaxis: axis(0), yaxis: { ...axis(1), ...(drawing ? { scaleanchor: "x" } : {}) } };
}

let drawnInSpace = null;
async function drawScatter() {
  if (drawnInSpace !== null && drawnInSpace !== state.space) Plotly.purge(scatter); // frees the WebGL context
  const first = drawnInSpace !== state.space;
  drawnInSpace = state.space;
  await Plotly.react(scatter, traces(), scatterLayout(), { ...CONFIG, scrollZoom: true });
  if (first) scatter.on("plotly_click", ({ points: [hit] }) => hit?.customdata !== undefined && choose(hit.customdata));
  const shown = state.isolated === null ? total : colouring().grouping.members[state.isolated].length;
  scatter.setAttribute("aria-label", `Scatter of ${shown.toLocaleString("en")} nodes by ${axes().map((c) => columns[c].name).join(", ")}`);
}
