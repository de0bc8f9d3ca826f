// Puts a newer page in the place of an older one, piece by piece, without moving what the reader is at.
"use strict";

const EVERY = 1500; // milliseconds
const REST = 3; // times as long as the last look took, at least, until the next one
const connection = document.getElementById("connection");
const pause = document.getElementById("pause");
let known = null; // the mark of the page that is shown
let paused = false;

function pieces(page) {
  return new Map([...page.querySelectorAll("main > [id], main > header, main > nav")].map((one) => [one.id, one]));
}

// what the reader has done to a piece: ticks, scrolling, what has the focus, what is unfolded
function kept(piece) {
  const here = document.activeElement;
  return {
    ticked: [...piece.querySelectorAll("input:checked")].map((one) => one.value),
    scrolled: [...piece.querySelectorAll(".table")].map((one) => one.scrollLeft),
    open: new Map([...piece.querySelectorAll("details")].map((one, at) => [one.dataset.name ?? at, one.open])),
    focus: piece.contains(here) ? called(here) : null,
    place: piece.contains(here) ? alike(piece, called(here)).indexOf(here) : -1,
  };
}

// by what it is and not by where it is: rows come and go. Words of links and tables change; of tables the place counts
function called(one) {
  if (one.matches(".table")) return "table";
  return `${one.tagName} ${one.value || one.getAttribute("href") || one.textContent}`;
}

function alike(piece, name) {
  const reachable = [...piece.querySelectorAll("a, button, input, summary, [tabindex]")];
  return reachable.filter((one) => called(one) === name);
}

function restore(piece, was) {
  for (const one of piece.querySelectorAll("input")) one.checked = was.ticked.includes(one.value);
  piece.querySelectorAll(".table").forEach((one, at) => { one.scrollLeft = was.scrolled[at] || 0; });
  // one that is new is as the page has it
  piece.querySelectorAll("details").forEach((one, at) => { one.open = was.open.get(one.dataset.name ?? at) ?? one.open; });
  if (was.focus !== null) alike(piece, was.focus)[was.place]?.focus({ preventScroll: true });
}

// regions that are read aloud stay the same elements, so that only a change of their words is read
function update(old, fresh) {
  const said = [...old.querySelectorAll("[role=status]")];
  const anew = [...fresh.querySelectorAll("[role=status]")];
  if (said.length === anew.length) {
    said.forEach((one, at) => {
      if (one.innerHTML !== anew[at].innerHTML) one.replaceChildren(...anew[at].cloneNode(true).childNodes);
      one.className = anew[at].className;
    });
  }
  if (old.outerHTML === fresh.outerHTML) return;
  const was = kept(old);
  if (said.length === anew.length) anew.forEach((one, at) => one.replaceWith(said[at]));
  old.replaceChildren(...fresh.childNodes);
  restore(old, was);
}

function show(page) {
  const before = pieces(document);
  const after = pieces(page);
  const main = document.querySelector("main");
  for (const [id, one] of before) if (!after.has(id)) one.remove();
  let previous = null;
  for (const [id, fresh] of after) {
    const old = before.get(id);
    if (old) update(old, fresh);
    const piece = old || document.adoptNode(fresh);
    if (!old) previous ? previous.after(piece) : main.prepend(piece);
    previous = piece;
  }
  document.title = page.title;
}

async function look() {
  if (paused || document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: known ? { "If-None-Match": known } : {}, cache: "no-store" });
    if (answer.status === 200) {
      known = answer.headers.get("ETag");
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    const lost = answer.status !== 200 && answer.status !== 304;
    say(lost ? "This page cannot be shown any more: " + (await answer.text()) : "");
  } catch (problem) {
    say("No connection: fairsilo watch has ended, or this machine is busy.");
  }
}

function say(words) {
  if (connection.textContent !== words) connection.textContent = words;
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Go on updating" : "Stop updating";
  look();
});
document.addEventListener("visibilitychange", look);

(async function follow() {
  const begun = performance.now();
  await look();
  setTimeout(follow, Math.max(EVERY, REST * (performance.now() - begun)));
})();
