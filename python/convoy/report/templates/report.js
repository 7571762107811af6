"use strict";
// Notes at the pointer and at the keyboard's focus.
const tip = document.getElementById("tip");
function show(target, x, y) {
  tip.textContent = target.dataset.tip;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
}
document.addEventListener("pointermove", (event) => {
  const target = event.target.closest("[data-tip]");
  if (target) show(target, event.clientX, event.clientY);
  else tip.hidden = true;
});
document.addEventListener("focusin", (event) => {
  const target = event.target.closest("[data-tip]");
  if (!target) return;
  const box = target.getBoundingClientRect();
  show(target, box.left, box.bottom - 10);
});
document.addEventListener("focusout", () => { tip.hidden = true; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

// Charts along time are stretched together and scroll together.
let zoom = 1;
const stretched = [...document.querySelectorAll("svg.zoomed")];
function setZoom(factor) {
  zoom = Math.min(64, Math.max(1, factor));
  for (const svg of stretched) svg.style.setProperty("--zoom", zoom);
}
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => {
    setZoom({ in: zoom * 1.6, out: zoom / 1.6, fit: 1 }[button.dataset.zoom]);
  });
}
const scrolls = stretched.map((svg) => svg.parentElement);
for (const one of scrolls) {
  one.addEventListener("scroll", () => {
    for (const other of scrolls) if (other.scrollLeft !== one.scrollLeft) other.scrollLeft = one.scrollLeft;
  });
}

for (const box of document.querySelectorAll(".scroll.tall")) {
  box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2;
}

// The trace is in the page; the link saves it as a file.
const save = document.getElementById("save");
if (save) {
  save.addEventListener("click", () => {
    const text = document.getElementById("trace").textContent;
    save.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  });
}

const rows = [...document.querySelectorAll("details.op")];
document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
const opener = document.querySelector("[data-open]");
opener.addEventListener("click", () => {
  const open = rows.some((row) => !row.open);
  for (const row of rows) row.open = open;
  opener.textContent = open ? "close all" : "open all";
});
