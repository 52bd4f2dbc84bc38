// Point at a solver, or click it, to see its curve alone.
const buttons = [...document.querySelectorAll("[data-curve]")];

function show(number) {
  for (const curve of document.querySelectorAll(".curve"))
    curve.classList.toggle("away", number !== null && !curve.classList.contains(`curve-${number}`));
}

const pressed = () => buttons.find((button) => button.getAttribute("aria-pressed") === "true")?.dataset.curve ?? null;

for (const button of buttons) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of buttons) other.setAttribute("aria-pressed", String(on && other === button));
    show(pressed());
  });
  button.addEventListener("pointerenter", () => show(button.dataset.curve));
  button.addEventListener("pointerleave", () => show(pressed()));
}
makeSortable();
