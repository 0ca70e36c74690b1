// Looks again every few seconds and puts the new main part in place of the old one. Without it the page is whole too.
"use strict";
(() => {
  const seconds = Number(document.body.dataset.refresh);
  const seen = document.getElementById("seen");
  let last = new Date();

  const said = (text, bad) => {
    if (seen.textContent !== text) seen.textContent = text;
    seen.classList.toggle("bad", bad);
  };

  // What a reader is in the middle of is left alone.
  const busy = () => {
    const active = document.activeElement;
    const selected = document.getSelection();
    return (active && active.matches("input")) || (selected && !selected.isCollapsed);
  };

  const look = async () => {
    if (document.hidden || busy()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(seconds * 1000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (!fresh || busy()) return;
      const old = document.getElementById("main");
      const focused = place(old, document.activeElement);
      const scrolled = [...old.querySelectorAll(".wide")].map((part) => part.scrollLeft);
      old.replaceWith(document.adoptNode(fresh));
      [...fresh.querySelectorAll(".wide")].forEach((part, index) => { part.scrollLeft = scrolled[index] || 0; });
      if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
      last = new Date();
      said(`Refreshed every ${seconds} s`, false);
    } catch {
      said(`Not reachable; as of ${last.toLocaleTimeString()}`, true);
    }
  };

  // How to find the focused element again in the new main part.
  const place = (main, element) => {
    if (!element || !main.contains(element)) return null;
    const link = element.getAttribute("href");
    const label = element.getAttribute("aria-label");
    if (element.id) return `#${CSS.escape(element.id)}`;
    if (link) return `a[href="${CSS.escape(link)}"]`;
    if (label) return `[aria-label="${CSS.escape(label)}"]`;
    return element.localName === "button" ? "button" : null;
  };

  said(`Refreshed every ${seconds} s`, false);
  setInterval(look, seconds * 1000);
  document.addEventListener("visibilitychange", look);
})();
