// Controls: every one changes the state and draws again.
const by = (id) => document.getElementById(id);

function element(tag, text, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  if (text !== null) made.textContent = text; // never innerHTML: names are text
  return made;
}

async function redraw() {
  fillAxes();
  fillLegend();
  markClusters();
  by("reset").disabled = state.isolated === null && state.found === null;
  say();
  await drawScatter();
}

function say() {
  const parts = [];
  if (state.isolated !== null) {
    const { grouping } = colouring();
    const size = grouping.members[state.isolated].length.toLocaleString("en");
    parts.push(`Only ${grouping.title} ${grouping.names[state.isolated]}: ${size} nodes.`);
  }
  if (state.found !== null) parts.push(describe(state.found));
  by("status").textContent = parts.join(" ");
}

function fillAxes() {
  const chosen = axes();
  ["x", "y", "z"].forEach((axis, i) => {
    const select = by(`axis-${axis}`);
    select.parentElement.hidden = i >= chosen.length;
    if (i < chosen.length) select.value = chosen[i];
  });
  for (const button of document.querySelectorAll("[data-space]"))
    button.setAttribute("aria-pressed", String((button.dataset.space === "yes") === state.space));
}

function fillLegend() {
  const { grouping } = colouring();
  by("stage").classList.toggle("alone", !grouping);
  by("legend").hidden = !grouping;
  if (!grouping) return;
  const held = document.activeElement?.dataset?.code; // a redraw must not take the focus away
  const list = element("ul", null);
  grouping.names.forEach((name, code) => {
    const button = element("button", null, { type: "button", title: `Show only ${grouping.title} ${name}` });
    button.dataset.code = code;
    button.setAttribute("aria-pressed", String(state.isolated === code));
    const swatch = element("span", null, { className: "swatch" });
    if (state.colour.startsWith("group")) swatch.style.setProperty("--of", paintIn(grouping, code));
    button.append(swatch, element("span", name, { className: "name" }),
      element("span", grouping.members[code].length.toLocaleString("en"), { className: "count" }));
    button.addEventListener("click", () => isolate(code));
    list.append(element("li", null));
    list.lastChild.append(button);
  });
  const heading = element("h3", grouping.title);
  heading.append(element("span", ": click to isolate", { className: "screen" }));
  by("legend").replaceChildren(heading, list);
  if (held !== undefined && document.activeElement === document.body) list.querySelector(`[data-code="${held}"]`)?.focus();
}

function markClusters() {
  const clusters = colouring().grouping?.title === "cluster";
  for (const button of document.querySelectorAll("[data-cluster]")) {
    const code = Number(button.dataset.cluster);
    button.setAttribute("aria-pressed", String(clusters && state.isolated === code));
    button.querySelector(".swatch").style.setProperty("--of", paint(code));
  }
}

function isolate(code) {
  state.isolated = state.isolated === code ? null : code;
  return redraw();
}

function choose(node) {
  state.found = node;
  by("matches").replaceChildren();
  return redraw();
}

function reset() {
  state.isolated = state.found = null;
  by("search").value = "";
  by("matches").replaceChildren();
  return redraw();
}

function showMatches() {
  const matches = search(by("search").value);
  by("matches").replaceChildren(...matches.map((node) => {
    const item = element("li", null);
    item.append(element("button", points.names[node], { type: "button" }));
    item.firstChild.addEventListener("click", () => { by("search").focus(); choose(node); });
    return item;
  }));
  if (by("search").value.trim() && !matches.length) by("status").textContent = "No node of that name.";
  else say();
}

// Arrow keys walk the list, as people expect of one.
function walkMatches(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const stops = [by("search"), ...by("matches").querySelectorAll("button")];
  if (!step || stops.length < 2) return;
  event.preventDefault();
  stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
}

function fillControls() {
  ["x", "y", "z"].forEach((axis, i) => {
    const select = by(`axis-${axis}`);
    columns.forEach(({ name }, column) => select.append(element("option", name, { value: column })));
    select.addEventListener("change", () => { axes()[i] = Number(select.value); redraw(); });
  });
  const colour = by("colour");
  const option = (value, text) => colour.append(element("option", text, { value }));
  groupings.forEach(({ title }, i) => option(`group ${i}`, title));
  scores.forEach(({ title }, i) => option(`score ${i}`, title));
  columns.forEach(({ name }, i) => isDrawing(i) || option(`column ${i}`, name));
  option("none", "nothing");
  colour.value = state.colour;
  colour.addEventListener("change", () => {
    const before = colouring().grouping;
    state.colour = colour.value;
    if (colouring().grouping !== before) state.isolated = null;
    redraw();
  });
  for (const button of document.querySelectorAll("[data-space]")) {
    button.disabled = columns.filter(({ name }) => !name.startsWith("layout ")).length < 3;
    button.addEventListener("click", () => { state.space = button.dataset.space === "yes"; redraw(); });
  }
}

function listen() {
  by("search").addEventListener("input", showMatches);
  by("finder").addEventListener("keydown", walkMatches);
  by("finder").addEventListener("submit", (event) => {
    event.preventDefault();
    const [node] = search(by("search").value);
    if (node !== undefined) choose(node);
  });
  by("reset").addEventListener("click", reset);
  for (const button of document.querySelectorAll("[data-cluster]"))
    button.addEventListener("click", () => {
      if (colouring().grouping.title !== "cluster") state.colour = by("colour").value = "group 0";
      isolate(Number(button.dataset.cluster));
    });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") reset();
    if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); by("search").focus(); }
  });
  by("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(report.command);
    by("copy").textContent = "Copied";
  });
  by("copy").hidden = !navigator.clipboard;
}

const drawAll = () => Promise.all([drawScatter(), drawSpectrum(), drawCurves()]);
const wish = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ?? (wish.matches ? "dark" : "light")) === "dark";

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  nameTheme();
  return drawAll();
}

function nameTheme() {
  by("theme").textContent = isDark() ? "Light" : "Dark";
  by("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
}

function watchTheme() {
  by("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  wish.addEventListener("change", () => setTheme(root.dataset.theme));
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    state.printing = true;
    setTheme("light"); // paper is white
  });
  addEventListener("afterprint", () => {
    state.printing = false;
    setTheme(before);
  });
}

fillControls();
listen();
makeSortable();
watchTheme();
nameTheme();
Promise.all([redraw(), drawSpectrum(), drawCurves()]).then(() => { root.dataset.ready = "yes"; });
