// Which cards are shown: by the verdict of the newest run, and by words.
(() => {
  const cards = [...document.querySelectorAll(".card")], tools = document.getElementById("gallery-tools");
  const kinds = [...new Set(cards.map((card) => card.dataset.verdict))].sort();
  if (cards.length < 2) return;
  const box = document.createElement("input");
  Object.assign(box, { type: "search", className: "filter", placeholder: "Filter reports" });
  box.setAttribute("aria-label", "Filter reports");
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  let kind = "all";
  const show = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const card of cards) {
      const text = `${card.closest("section").querySelector("h2").textContent} ${card.textContent}`.toLowerCase();
      card.hidden = (kind !== "all" && card.dataset.verdict !== kind) || !words.every((word) => text.includes(word));
      shown += !card.hidden;
    }
    for (const area of document.querySelectorAll("section.area")) area.hidden = !area.querySelector(".card:not([hidden])");
    count.textContent = shown === cards.length ? "" : `${shown} of ${cards.length}`;
  };
  const buttons = (kinds.length > 1 ? ["all", ...kinds] : []).map((name) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name === "all" ? "all" : `${name} (${cards.filter((card) => card.dataset.verdict === name).length})`;
    button.setAttribute("aria-pressed", String(name === kind));
    button.addEventListener("click", () => {
      kind = name;
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      show();
    });
    return button;
  });
  box.addEventListener("input", show);
  tools.append(...buttons, box, count);
})();
