// Which cards are shown and in which order: by area, by verdict, by words; as the questions go, or the newest first.
(() => {
  const cards = [...document.querySelectorAll(".card")], tools = document.getElementById("gallery-tools");
  if (cards.length < 2) return;
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  const box = document.createElement("input");
  Object.assign(box, { type: "search", className: "filter", placeholder: "Filter reports" });
  box.setAttribute("aria-label", "Filter reports");
  const choose = (label, options) => {
    const select = document.createElement("select");
    select.className = "filter";
    select.setAttribute("aria-label", label);
    for (const [value, text] of options) select.append(new Option(text, value));
    return select;
  };
  const found = (name) => [...new Set(cards.map((card) => card.dataset[name]))].sort();
  const areas = choose("Area", [["", "All areas"], ...found("area").map((name) => [name, name.replaceAll("_", " ")])]);
  const kinds = choose("Verdict", [["", "All verdicts"], ...found("verdict").map((name) => [name, `${name} (${cards.filter((card) => card.dataset.verdict === name).length})`])]);
  const order = choose("Order", [["question", "By question"], ["newest", "Newest first"]]);
  const show = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const card of cards) {
      const text = card.textContent.toLowerCase(), { area, verdict } = card.dataset;
      card.hidden = (areas.value && area !== areas.value) || (kinds.value && verdict !== kinds.value) || !words.every((word) => text.includes(word));
      shown += !card.hidden;
    }
    count.textContent = shown === cards.length ? "" : `${shown} of ${cards.length}`;
  };
  order.addEventListener("change", () => {
    const newest = [...cards].sort((a, b) => b.dataset.started.localeCompare(a.dataset.started));
    cards[0].parentElement.append(...(order.value === "newest" ? newest : cards));
  });
  box.addEventListener("input", show);
  areas.addEventListener("change", show);
  kinds.addEventListener("change", show);
  tools.append(...(found("area").length > 1 ? [areas] : []), ...(found("verdict").length > 1 ? [kinds] : []), order, box, count);
})();
