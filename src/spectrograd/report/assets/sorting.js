// Tables whose headings are buttons: a click sorts by that column, another one the other way round.
function makeSortable() {
  for (const button of document.querySelectorAll("th > button.sort")) button.addEventListener("click", () => sortBy(button.parentElement));
}

function sortBy(heading) {
  const body = heading.closest("table").tBodies[0];
  const column = [...heading.parentElement.children].indexOf(heading);
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = (row) => row.cells[column].textContent;
  const words = new Intl.Collator("en", { numeric: true }).compare;
  const figure = (text) => Number(text.replace(/,/g, "").replace("–", "Infinity")); // a dash comes last
  const figures = [...body.rows].every((row) => !Number.isNaN(figure(text(row))));
  const compare = (a, b) => (figures ? Math.sign(figure(a) - figure(b)) || 0 : words(a, b));
  body.append(...[...body.rows].sort((a, b) => compare(text(a), text(b)) * (down ? -1 : 1)));
}
