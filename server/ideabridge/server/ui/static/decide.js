// What pages with open decisions do beyond links and forms: they have keys for choosing and deciding, and send browser
// notifications.
"use strict";

(() => {
  // -- keys: j and k choose a decision, a approves it, d denies it --------------------------------------------------

  // Keys do not decide about a card that has just been chosen, for as long as a new button ignores clicks.
  const STEADY_MS = 1000;
  const DECISIONS = { a: "approve", d: "deny" };
  let chosen = null;
  let steadying = 0;

  function cards() {
    return [...document.querySelectorAll("article[data-card]:not(.settled)")];
  }

  function mark(card) {
    if (card !== chosen) {
      chosen?.classList.remove("chosen");
      settle(card);
      chosen = card;
    }
    card.classList.add("chosen");
  }

  function settle(card) {
    chosen?.classList.remove("steady");
    clearTimeout(steadying);
    steadying = setTimeout(() => card.classList.add("steady"), STEADY_MS);
  }

  function isInView(button) {
    const box = button.getBoundingClientRect();
    return box.top >= 0 && box.bottom <= innerHeight;
  }

  function choose(card) {
    if (!card) return;
    mark(card);
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }

  function step(by) {
    const all = cards();
    const place = all.indexOf(chosen);
    if (place < 0) choose(all[by > 0 ? 0 : all.length - 1]);
    else choose(all[Math.min(all.length - 1, Math.max(0, place + by))]);
  }

  function decide(name) {
    if (!chosen?.isConnected || !chosen.matches(".steady:not(.settled)")) return;
    const button = chosen.querySelector(`.decide > .row > button[value="${name}"]`);
    if (!button) return;
    if (isInView(button)) {
      // This click must also pass the check in ui.js.
      button.click();
    } else {
      // A reader who has scrolled away sees another card, so show this one first.
      settle(chosen);
      choose(chosen);
      button.scrollIntoView({ block: "nearest" });
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key in DECISIONS) decide(DECISIONS[event.key]);
    else return;
    event.preventDefault();
  });

  // At the start, the card that the URL points to is chosen, or else the first one.
  const start = document.querySelector("article[data-card]:target") ?? cards()[0];
  if (start) mark(start);

  // -- notifications of the browser ---------------------------------------------------------------------------------

  const helps = document.querySelector("[data-helps]");
  const button = document.querySelector("[data-notify]");
  if (helps) helps.hidden = false;
  if (!button || !("Notification" in window)) return;

  const WISH = "ideabridge-notify";
  let known = new Set(cards().map((card) => card.id));

  function wants() {
    return Notification.permission === "granted" && localStorage.getItem(WISH) === "on";
  }

  function show() {
    button.hidden = Notification.permission === "denied";
    button.textContent = wants() ? "Stop notifying me" : "Notify me in this browser";
    document.documentElement.toggleAttribute("data-notifies", wants());
  }

  // The browser asks the person for permission only after this click.
  button.addEventListener("click", async () => {
    if (wants()) localStorage.setItem(WISH, "off");
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(WISH, "on");
    show();
  });

  // A notification contains no values, because other people may see the screen.
  document.addEventListener("refreshed", () => {
    const waiting = cards().map((card) => card.id);
    const isNew = waiting.some((id) => !known.has(id));
    known = new Set(waiting);
    if (!isNew || !document.hidden || !wants()) return;
    const text = waiting.length === 1 ? "1 decision is pending." : `${waiting.length} decisions are pending.`;
    const notification = new Notification("ideabridge", { body: text, tag: "ideabridge" });
    notification.onclick = () => window.focus();
  });

  show();
})();
