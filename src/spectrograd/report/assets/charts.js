// Colours of the theme, and the two small charts: eigenvalues and convergence.
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "sendDataToCloud"] };
const root = document.documentElement;

// A custom property as a colour that Plotly reads: light-dark() is resolved by a real element only.
function tint(name) {
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.color = `var(${name})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

const axisStyle = () => ({
  gridcolor: tint("--line"), zerolinecolor: tint("--line"), linecolor: tint("--line"), color: tint("--soft"),
  automargin: true, showbackground: false, exponentformat: "power", // 3 × 10⁻⁴, not 300µ
});
const baseLayout = () => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, autosize: true,
  font: { family: "system-ui, sans-serif", color: tint("--ink"), size: 12 },
  margin: { l: 52, r: 14, t: 12, b: 44 },
  hoverlabel: { bgcolor: tint("--back"), bordercolor: tint("--soft"), font: { color: tint("--ink") }, align: "left" },
});

async function drawSpectrum() {
  const { values, residuals, beyond, gap } = report.spectrum;
  const number = values.map((_, i) => i + 1);
  const found = {
    x: number, y: values, mode: "markers", marker: { size: 9, color: tint("--accent") },
    error_y: { type: "data", array: residuals, color: tint("--soft"), thickness: 1.2 },
    hovertemplate: "eigenvalue %{x}: %{y:.5g}<extra></extra>",
  };
  const next = {
    x: [values.length + 1], y: [beyond], mode: "markers",
    marker: { size: 9, symbol: "circle-open", color: tint("--soft"), line: { width: 2 } },
    hovertemplate: "the next one, estimated: %{y:.5g}<extra></extra>",
  };
  const layout = { ...baseLayout(), xaxis: { ...axisStyle(), title: { text: "number" }, dtick: values.length > 20 ? undefined : 1 }, yaxis: { ...axisStyle(), title: { text: "eigenvalue" } } };
  if (gap) {
    const [low, high] = [values[gap - 1], values[gap] ?? beyond];
    layout.shapes = [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: low, y1: high, line: { width: 0 }, fillcolor: tint("--accent"), opacity: 0.12 }];
    layout.annotations = [{ xref: "paper", x: 0.02, xanchor: "left", y: (low + high) / 2, text: `eigengap ${(high - low).toPrecision(3)}`, showarrow: false, font: { color: tint("--accent") } }];
  }
  await Plotly.react("spectrum", beyond === null ? [found] : [found, next], layout, CONFIG);
}

async function drawCurves() {
  const chart = document.getElementById("convergence");
  const last = report.curves.length - 1;
  const line = (curve, values, name, style) => ({
    x: curve.seconds, y: values.map((value) => (value > 0 ? value : null)), name: plain(name), mode: "lines+markers",
    connectgaps: true, marker: { size: 5 }, ...style, hovertemplate: "%{y:.3g} at %{x:.2f} s<extra>%{fullData.name}</extra>",
  });
  const drawn = report.curves.flatMap((curve, i) => {
    if (curve.seconds.length < 2) return [];
    const residual = line(curve, curve.residual, `${curve.name}: residual`, { line: { color: i === last ? tint("--ink") : paint(i), width: i === last ? 2.5 : 1.2 } });
    if (i < last) return [residual];
    const best = Math.min(...curve.objective.filter((value) => value !== null));
    const excess = curve.objective.map((value) => (value === null ? null : value - best));
    return [residual, line(curve, excess, `${curve.name}: objective above its best`, { line: { color: tint("--accent"), width: 1.5, dash: "dot" } })];
  });
  chart.hidden = !drawn.length;
  if (!drawn.length) return;
  const layout = {
    ...baseLayout(), showlegend: true, legend: { orientation: "h", y: -0.32, yanchor: "top", x: 0 }, // above, the mode bar would cover it
    xaxis: { ...axisStyle(), title: { text: "seconds" }, rangemode: "tozero" },
    yaxis: { ...axisStyle(), type: "log", nticks: 7 },
  };
  await Plotly.react(chart, drawn, layout, CONFIG);
}
