// What the pages of ideabridge do beyond links and forms: they follow the store, ignore clicks that were meant for
// something else, move through a journal with a slider, and complete names in the playground. Without this script,
// every page still works.
"use strict";

(() => {
  const root = document.body.dataset.ui;

  // -- following the store ----------------------------------------------------------------------------------------

  const sign = document.getElementById("live");
  let loading = false;
  let again = false;

  // Loads this page again and replaces the elements with `data-live` that have changed. What the reader has opened, is
  // typing into, points at, or has scrolled to is left alone. Decisions (`data-cards`) are never replaced.
  async function refresh(url = location.href) {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    try {
      const answer = await fetch(url, { headers: { Accept: "text/html", "Ideabridge-Refresh": "1" } });
      if (!answer.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      localize(fresh);
      if (shape(fresh) !== shape(document)) reshape(fresh);
      for (const old of document.querySelectorAll("[data-live]")) {
        const next = old.id && fresh.getElementById(old.id);
        if (!next || isSame(old, next) || busy(old)) continue;
        if (old.matches("[data-rows]:hover")) freshenRows(old, next);
        else replace(old, next);
      }
      for (const old of document.querySelectorAll("[data-cards]")) {
        const next = fresh.getElementById(old.id);
        if (next && !old.closest("[data-kept]")) keep(old, next);
      }
      lengthen(fresh.querySelector("[data-slide]"));
      document.title = fresh.title;
      mark(fresh.querySelector("link[rel=icon]"));
      for (const next of fresh.querySelectorAll("[data-live]")) {
        if (next.id && !document.getElementById(next.id)) document.getElementById("main").append(next);
      }
      steady();
      document.dispatchEvent(new Event("refreshed"));
    } catch (error) {
      show(false);
    } finally {
      loading = false;
      if (again) {
        again = false;
        setTimeout(refresh, 500);
      }
    }
  }

  function shape(page) {
    return page.querySelector("[data-shape]")?.dataset.shape;
  }

  // The page now has different parts, as Home does once something has run. Replace all of them together.
  function reshape(fresh) {
    const main = document.getElementById("main");
    main.replaceChildren(...document.adoptNode(fresh.getElementById("main").cloneNode(true)).childNodes);
    for (const part of main.querySelectorAll("[data-later]")) complete(part);
  }

  // The tab's icon shows whether something is waiting.
  function mark(icon) {
    const old = document.querySelector("link[rel=icon]");
    if (icon && old.href !== icon.href) old.replaceWith(icon);
  }

  // A part that is slow to create is loaded after the page is shown. If that fails, the part keeps its link, which
  // is also there for readers without scripts.
  async function complete(part) {
    part.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(part.dataset.later, { headers: { Accept: "text/html", "Ideabridge-Refresh": "1" } });
      if (!answer.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
      if (fresh) part.replaceChildren(...fresh.childNodes);
      if (fresh) part.hidden = fresh.hidden;
      part.removeAttribute("data-later");
    } catch (error) {
      show(false);
    } finally {
      part.removeAttribute("aria-busy");
    }
  }

  for (const part of document.querySelectorAll("[data-later]")) complete(part);

  // An element is busy if the reader is typing into one of its fields, has changed one, or points at a button that
  // might become a different one.
  function busy(element) {
    if (element.querySelector("form button") && element.matches(":hover")) {
      element.addEventListener("pointerleave", () => refresh(), { once: true });
      return true;
    }
    const active = document.activeElement;
    if (element.contains(active) && active.matches("input:not([type=checkbox]), textarea, select")) return true;
    return [...element.querySelectorAll("textarea, input:not([type=hidden]), select")].some((field) => changed(field));
  }

  // While the pointer is over a list, its rows stay where they are: only their cells change, and new rows wait until
  // the pointer leaves.
  function freshenRows(old, next) {
    let coming = 0;
    for (const row of next.querySelectorAll("tr[id]")) {
      const shown = document.getElementById(row.id);
      if (!shown) coming += 1;
      else freshenCells(shown, row);
    }
    const note = old.querySelector(".new-rows");
    if (note && coming) {
      note.hidden = false;
      note.textContent = `${coming} new: move the pointer off the list to see ${coming === 1 ? "it" : "them"}`;
    }
    if (!old.dataset.awaits) {
      old.dataset.awaits = "1";
      old.addEventListener("pointerleave", () => {
        delete old.dataset.awaits;
        refresh();
      }, { once: true });
    }
  }

  // Replaces only cells that keep their height, so that no row moves.
  function freshenCells(shown, row) {
    const fresh = row.querySelectorAll("td[data-fresh]");
    shown.querySelectorAll("td[data-fresh]").forEach((cell, place) => {
      if (fresh[place] && !isSame(cell, fresh[place])) become(cell, fresh[place]);
    });
  }

  // The attributes that this script sets, which a fresh page does not have.
  const OWN = ["data-awaits", "aria-busy"];

  function isSame(old, next) {
    const names = [...next.attributes].map((one) => one.name);
    const gone = [...old.attributes].some((one) => !names.includes(one.name) && !OWN.includes(one.name));
    return !gone && names.every((name) => old.getAttribute(name) === next.getAttribute(name)) && next.innerHTML === old.innerHTML;
  }

  // Gives an element the attributes, such as its class, and the contents of a fresh one.
  function become(old, next) {
    for (const one of [...old.attributes]) {
      if (!next.hasAttribute(one.name) && !OWN.includes(one.name)) old.removeAttribute(one.name);
    }
    for (const one of next.attributes) old.setAttribute(one.name, one.value);
    old.replaceChildren(...next.childNodes);
  }

  // Splits a text into its parts. The parts between backquotes become code. If a backquote has no partner, the text
  // stays as it is.
  function coded(text) {
    const pieces = text.split("`");
    if (pieces.length % 2 === 0) return [text];
    return pieces.map((piece, place) => {
      if (place % 2 === 0) return piece;
      const code = document.createElement("code");
      code.textContent = piece;
      return code;
    });
  }

  function changed(field) {
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.tagName === "SELECT") return [...field.options].some((one) => one.selected !== one.defaultSelected && one.defaultSelected);
    return field.value !== field.defaultValue;
  }

  function replace(old, next) {
    const open = [...old.querySelectorAll("details")].map((one) => one.open);
    const scrolled = [...old.querySelectorAll(".scroll, pre, .program")].map((one) => [one.scrollLeft, one.scrollTop]);
    const active = old.contains(document.activeElement) ? pathOf(document.activeElement, old) : null;
    become(old, next);
    old.querySelectorAll("details").forEach((one, place) => {
      if (open[place] !== undefined && open.length === old.querySelectorAll("details").length) one.open = open[place];
    });
    old.querySelectorAll(".scroll, pre, .program").forEach((one, place) => {
      if (scrolled[place]) [one.scrollLeft, one.scrollTop] = scrolled[place];
    });
    if (active) active.reduce((one, place) => one && one.children[place], old)?.focus({ preventScroll: true });
  }

  // Each decision keeps its position while the page is open. New ones are added at the end, and settled ones are
  // marked. Nothing above a decision changes, so none moves away from under the pointer.
  function keep(old, next) {
    if (!old.querySelector(":scope > [data-card]")) {
      old.replaceChildren(...next.childNodes);
    } else {
      const coming = new Map([...next.querySelectorAll(":scope > [data-card]")].map((card) => [card.id, card]));
      for (const card of old.querySelectorAll(":scope > [data-card]")) {
        const now = coming.get(card.id);
        coming.delete(card.id);
        settle(card, !now);
        if (now && !card.matches(":hover")) freshen(card, now);
      }
      old.append(...coming.values());
    }
    const several = old.closest("[data-several]");
    if (several && old.children.length > 1) several.classList.remove("absent");
  }

  function settle(card, settled) {
    if (card.classList.contains("settled") === settled) return;
    card.classList.toggle("settled", settled);
    for (const field of card.querySelectorAll("button:not([hidden]), input, textarea, select")) {
      field.disabled = settled;
      if (field.type === "checkbox") field.checked = false;
    }
    const gone = document.createElement("span");
    gone.className = "status gone";
    gone.textContent = "no longer pending";
    if (settled) (card.querySelector("header") || card.querySelector("label")).append(gone);
    else card.querySelector(".gone")?.remove();
  }

  function freshen(card, now) {
    const fresh = now.querySelectorAll("[data-fresh]");
    card.querySelectorAll("[data-fresh]").forEach((one, place) => {
      if (fresh[place]) become(one, fresh[place]);
    });
  }

  // -- a click is meant for what its reader saw ---------------------------------------------------------------------

  // A button that changes something ignores clicks for a second after it has appeared or moved.
  const CHANGING = "[data-card] button, [data-several] button, [data-live] form button, [data-steady] button";
  const STEADY_MS = 1000;
  const places = new WeakMap();

  function since(button) {
    const box = button.getBoundingClientRect();
    const place = `${Math.round(box.left + scrollX)} ${Math.round(box.top + scrollY)}`;
    const known = places.get(button);
    if (known?.place === place) return known.since;
    const now = performance.now();
    places.set(button, { place, since: now });
    return now;
  }

  function steady() {
    let moved = false;
    for (const button of document.querySelectorAll(CHANGING)) {
      const young = performance.now() - since(button) < STEADY_MS;
      moved ||= young;
      if (young) {
        button.setAttribute("aria-disabled", "true");
      } else {
        button.removeAttribute("aria-disabled");
        button.removeAttribute("data-held");
      }
    }
    clearTimeout(steady.timer);
    if (moved) steady.timer = setTimeout(steady, 100);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest(CHANGING);
    if (button && performance.now() - since(button) < STEADY_MS) {
      event.preventDefault();
      event.stopPropagation();
      steady();
      hold(button);
    }
  }, true);

  // Shows a reader who presses a button too early how long it still ignores clicks.
  function hold(button) {
    const left = STEADY_MS - (performance.now() - since(button));
    button.style.setProperty("--held", `${Math.max(0, Math.round(left))}ms`);
    button.setAttribute("data-held", "");
  }

  // A button that has just appeared gets no events (see `steady` in ui.css), so find it by its position.
  document.addEventListener("pointerdown", (event) => {
    for (const button of document.querySelectorAll("button[aria-disabled=true]")) {
      const box = button.getBoundingClientRect();
      const isInside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
      if (isInside) hold(button);
    }
  });
  document.addEventListener("toggle", steady, true);
  new ResizeObserver(steady).observe(document.getElementById("main"));
  steady();

  function pathOf(element, top) {
    const path = [];
    for (let one = element; one !== top; one = one.parentElement) path.unshift([...one.parentElement.children].indexOf(one));
    return path;
  }

  function show(on) {
    if (!sign) return;
    sign.textContent = on ? "● live" : "○ offline";
    sign.classList.toggle("on", on);
  }

  let source = null;

  // A tab in the background does not follow the store, unless its reader wants to be notified (see decide.js).
  function rests() {
    return document.hidden && !document.documentElement.hasAttribute("data-notifies");
  }

  function follow() {
    if (source || rests() || !document.querySelector("[data-live], [data-cards]")) return;
    source = new EventSource(`${root}/live?since=${document.body.dataset.revision}`);
    source.onopen = () => show(true);
    source.onerror = () => show(false);
    source.addEventListener("changed", () => {
      document.documentElement.dataset.changes = String(Number(document.documentElement.dataset.changes || 0) + 1);
      refresh();
    });
  }
  document.addEventListener("visibilitychange", () => {
    if (rests()) {
      source?.close();
      source = null;
    } else {
      follow();
      refresh();
    }
  });
  // Close the stream when the reader leaves the page, because browsers open only six connections to a server.
  addEventListener("pagehide", () => {
    source?.close();
    source = null;
  });
  addEventListener("pageshow", follow);
  follow();

  // -- ages -----------------------------------------------------------------------------------------------------------

  // Ages grow while the page is open. The server states each age in seconds when it creates the page, because its clock
  // can differ from the browser's.
  const begun = new WeakMap();

  function ageText(seconds) {
    if (seconds < 1) return "just now";
    if (seconds < 60) return `${Math.floor(seconds)} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
    const days = Math.floor(seconds / 86400);
    return `${days.toLocaleString("en")} day${days === 1 ? "" : "s"} ago`;
  }

  function age() {
    for (const shown of document.querySelectorAll("[data-age]")) {
      if (!begun.has(shown)) begun.set(shown, Date.now() - 1000 * Number(shown.dataset.age));
      const text = ageText((Date.now() - begun.get(shown)) / 1000);
      if (shown.textContent !== text) shown.textContent = text;
    }
  }
  document.addEventListener("refreshed", age);
  setInterval(age, 1000);
  age();

  // -- times --------------------------------------------------------------------------------------------------------

  // The server does not know the reader's time zone, so it writes times in UTC. Convert them to local time.
  const DAY_AND_MINUTE = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" };

  function localize(page) {
    for (const shown of page.querySelectorAll("time[datetime]")) {
      const at = new Date(shown.dateTime);
      if (shown.title.endsWith("UTC")) shown.title = at.toLocaleString("en-GB", { ...DAY_AND_MINUTE, second: "2-digit" });
      if (shown.hasAttribute("data-local")) shown.textContent = at.toLocaleString("en-GB", DAY_AND_MINUTE);
    }
  }
  localize(document);

  // -- the slider through a journal ---------------------------------------------------------------------------------

  const slide = document.querySelector("[data-slide]");

  function tell() {
    slide.form.querySelector("output").textContent = slide.value;
    slide.form.querySelector("[data-last]").textContent = slide.max;
    slide.setAttribute("aria-valuetext", `moment ${slide.value} of ${slide.max}`);
  }

  // The journal has grown. If the slider was at the end, it stays at the end.
  function lengthen(next) {
    if (!slide || !next || slide.max === next.max) return;
    const follows = slide.value === slide.max;
    slide.max = next.max;
    if (follows) slide.value = next.max;
    tell();
  }

  if (slide) {
    let timer = 0;
    slide.addEventListener("input", () => {
      tell();
      clearTimeout(timer);
      timer = setTimeout(() => {
        const url = new URL(location.href);
        if (slide.value === slide.max) url.searchParams.delete("at");
        else url.searchParams.set("at", slide.value);
        history.replaceState(null, "", url);
        const shown = document.getElementById("timeline");
        shown.setAttribute("aria-busy", "true");
        refresh(url.href).finally(() => shown.removeAttribute("aria-busy"));
      }, 120);
    });
  }

  // -- forms at work ------------------------------------------------------------------------------------------------

  // A submitted form is marked until the response replaces the page, and cannot be submitted again.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented) return;
    if (form.getAttribute("aria-busy") === "true") {
      event.preventDefault();
      return;
    }
    form.setAttribute("aria-busy", "true");
    event.submitter?.setAttribute("data-busy", "");
  });

  function release() {
    for (const form of document.querySelectorAll("form[aria-busy]")) form.removeAttribute("aria-busy");
    for (const button of document.querySelectorAll("[data-busy]")) button.removeAttribute("data-busy");
  }

  // The reader has come back to the page, or has stopped loading the next one.
  addEventListener("pageshow", release);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") release();
  });

  // -- tabs ---------------------------------------------------------------------------------------------------------

  // Tabs that do not fit scroll. The current one is visible.
  for (const tabs of document.querySelectorAll(".tabs")) {
    const current = tabs.querySelector("[aria-current]");
    if (current) tabs.scrollLeft = Math.max(0, current.offsetLeft + current.offsetWidth - tabs.offsetLeft - tabs.clientWidth / 2);
  }

  // A graph that does not fit scrolls, too. It begins with the call that is running, but on a phone, half of another call
  // would be before that one.
  if (matchMedia("(min-width: 30rem)").matches) {
    for (const graph of document.querySelectorAll("#graph .scroll")) {
      const active = graph.querySelector(".s-asking, .s-running");
      if (active) graph.scrollLeft += Math.max(0, active.getBoundingClientRect().right + 8 - graph.getBoundingClientRect().right);
    }
  }

  // -- menus --------------------------------------------------------------------------------------------------------

  // A selection that takes effect immediately needs no button.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-sends]")) event.target.form.requestSubmit();
  });

  // The preview of a tool follows what a person chooses for a parameter: a value that is always the same stands there.
  document.addEventListener("change", (event) => {
    const use = event.target.closest("[data-input]");
    if (!use) return;
    const isFixed = event.target.value === "fix";
    for (const shown of document.querySelectorAll(".plan-steps [title]")) {
      if (shown.title !== `†input.${use.dataset.input}`) continue;
      shown.dataset.proposed ??= shown.textContent;
      shown.textContent = isFixed ? use.dataset.recorded : shown.dataset.proposed;
    }
  });

  // Escape closes a menu and gives the focus back to the word that opens it. A click elsewhere closes it, too.
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector("details.more[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.more[open]")) menu.open = menu.contains(event.target);
  });

  // -- copying ------------------------------------------------------------------------------------------------------

  // Browsers let a page write to the clipboard only in a secure context. Elsewhere, copy a selection instead.
  async function copyText(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await copyText(button.dataset.copy);
    const label = button.getAttribute("aria-label");
    button.classList.add("is-copied");
    button.setAttribute("aria-label", "Copied");
    setTimeout(() => {
      button.classList.remove("is-copied");
      button.setAttribute("aria-label", label);
    }, 2000);
  });

  // -- choosing several ---------------------------------------------------------------------------------------------

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) {
      for (const one of document.querySelectorAll("input[name=which][type=checkbox]:enabled")) one.checked = event.target.checked;
    }
  });

  // Changing a call also selects it.
  document.addEventListener("input", (event) => {
    const box = document.getElementById(event.target.dataset.chooses || "");
    if (box) box.checked = true;
  });

  // Ctrl+Enter in a text area sends its form with the button beside it.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
      event.preventDefault();
      const near = event.target.closest(".option, details")?.querySelector("button");
      event.target.form.requestSubmit(near || event.target.form.querySelector("button[data-default]") || undefined);
    }
  });

  // An idea that has changed since its last check must be checked again before it is saved.
  const save = document.querySelector("form.playground button[value=save]");
  save?.form.querySelector("textarea[name=text]").addEventListener("input", () => {
    save.classList.remove("good");
    save.form.querySelector("button[value=check]").classList.add("good");
  });

  // -- lines and colours of an editor -------------------------------------------------------------------------------

  // Each kind of word has the same colour as in texts that the server colours.
  const STRING = String.raw`"(?:[^"\\\n]|\\.)*"`;
  const LANGUAGES = {
    json: new RegExp(`(?<nt>${STRING}(?=\\s*:))|(?<s2>${STRING})|(?<mi>-?\\b\\d[\\d.eE+-]*)|\\b(?<k>true|false|null)\\b`, "g"),
    python: new RegExp(`(?<c>#.*)|(?<s2>"""[^]*?"""|\'\'\'[^]*?\'\'\'|${STRING}|${STRING.replaceAll('"', "'")})|\\b(?<k>False|None|True|and|as|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\\b|(?<mi>\\b\\d[\\w.]*)`, "g"),
    yaml: new RegExp(`(?<c>(?<=^|\\s)#.*)|(?<nt>${STRING}(?=\\s*:)|[\\w.-]+(?=:(?:\\s|$)))|(?<s2>${STRING}|†[\\w.]+)|(?<mi>(?<=[\\s:[,{])-?\\d[\\d.]*(?=[\\s,\\]}]|$))|\\b(?<k>true|false|null)\\b`, "gm"),
  };
  const LONGEST_COLOURED = 50000;

  function coloured(text, language) {
    if (text.length > LONGEST_COLOURED) return [text];
    const parts = [];
    let end = 0;
    for (const match of text.matchAll(language)) {
      const [kind] = Object.entries(match.groups).find(([, word]) => word !== undefined);
      const word = document.createElement("span");
      word.className = `h-${kind}`;
      word.textContent = match[0];
      parts.push(text.slice(end, match.index), word);
      end = match.index + match[0].length;
    }
    return [...parts, text.slice(end)];
  }

  // The text area stays what the person writes into. Its own letters are invisible, and behind it is the same text in
  // colours. The numbers of the lines are at its left; those of lines with a fault are marked.
  function dress(area) {
    const numbers = document.createElement("pre");
    numbers.className = "lines";
    const paint = document.createElement("pre");
    paint.className = "paint";
    for (const beside of [numbers, paint]) beside.setAttribute("aria-hidden", "true");
    area.before(paint, numbers);
    area.parentElement.classList.add("dressed");
    const faults = new Set((area.dataset.faults || "").split(" "));
    let shown = 0;

    const follow = () => {
      paint.scrollTop = numbers.scrollTop = area.scrollTop;
      paint.scrollLeft = area.scrollLeft;
    };
    const draw = () => {
      const count = area.value.split("\n").length;
      if (count !== shown) {
        numbers.replaceChildren(...Array.from({ length: count }, (_, place) => {
          const line = document.createElement("span");
          line.textContent = `${place + 1}\n`;
          if (faults.has(String(place + 1))) line.className = "fault";
          return line;
        }));
        shown = count;
      }
      // The last line needs a line break after it, so that both scroll equally far.
      paint.replaceChildren(...coloured(area.value, LANGUAGES[area.dataset.language]), "\n");
      follow();
    };
    for (const kind of ["input", "change"]) area.addEventListener(kind, draw);
    area.addEventListener("scroll", follow);
    addEventListener("pageshow", draw);
    draw();
  }

  for (const area of document.querySelectorAll("textarea[data-language]")) dress(area);

  // -- examples to begin with ---------------------------------------------------------------------------------------

  for (const example of document.querySelectorAll("[data-example]")) {
    example.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const area = document.querySelector(".editor textarea");
      area.focus();
      area.select();
      // As if the person had typed it, so that it can be undone.
      document.execCommand("insertText", false, example.dataset.example);
      area.dispatchEvent(new Event("completed"));
      document.querySelector("[data-example][aria-current]")?.removeAttribute("aria-current");
      example.setAttribute("aria-current", "true");
    });
  }

  // -- completion in the playground ---------------------------------------------------------------------------------

  const editor = document.querySelector("textarea[data-complete]");
  if (editor) {
    const list = document.getElementById("choices");
    const MOST_TOOLS = 100;
    // The groups that are open from the start have at most this many tools together, so that the list is not longer than the form.
    const MOST_OPEN = 10;
    let tools = [];
    let chosen = 0;
    let found = [];
    // If the person began to type before the tools arrived, offer matching completions now.
    fetch(`${root}/playground/tools`).then((answer) => answer.json()).then((all) => {
      tools = all;
      listTools();
      if (document.activeElement === editor) complete();
    });

    const isProgram = () => editor.form.elements.kind.value === "program";

    // The text before the cursor decides what can follow: the name of a tool, or a parameter of the call's tool.
    function offers() {
      const before = editor.value.slice(0, editor.selectionStart);
      if (isProgram()) {
        const inside = before.match(/([\w.]+)\(([^()]*)$/);
        const called = inside && tools.find((one) => one.program === inside[1]);
        const word = before.match(/[\w.]*$/)[0];
        if (called && /(^|[,\s])\w*$/.test(inside[2])) {
          return [word, called.parameters.map((one) => ({ text: `${one.name}=`, note: one.note }))];
        }
        return word ? [word, tools.map((one) => ({ text: one.program, note: one.description }))] : null;
      }
      const tool = before.match(/"_tool"\s*:\s*"([^"]*)$/);
      if (tool) return [tool[1], tools.map((one) => ({ text: one.name, note: one.description }))];
      const key = before.match(/[{,]\s*"(\w*)$/);
      if (key) {
        const call = before.slice(before.lastIndexOf("{")) + editor.value.slice(editor.selectionStart).split("}")[0];
        const name = call.match(/"_tool"\s*:\s*"([^"]*)"/);
        const called = name && tools.find((one) => one.name === name[1]);
        const own = called ? called.parameters.map((one) => ({ text: one.name, note: one.note })) : [];
        const meta = ["_tool", "_module", "_outputPath", "_outputMethod", "_each", "_after", "_id", "_output", "_instance", "_imports"];
        return [key[1], [...own, ...meta.map((one) => ({ text: one, note: "" }))]];
      }
      const reference = before.match(/"†(\w*)$/);
      if (reference) return [reference[1], ["input", "state", "results", "item", "data"].map((one) => ({ text: one, note: "reference" }))];
      return null;
    }

    function close() {
      list.hidden = true;
      editor.removeAttribute("aria-activedescendant");
    }

    function complete() {
      const offered = offers();
      const [word, all] = offered || ["", []];
      const low = word.toLowerCase();
      found = all.filter((one) => one.text.toLowerCase().includes(low) && one.text !== word).slice(0, 12);
      found.sort((one, other) => other.text.toLowerCase().startsWith(low) - one.text.toLowerCase().startsWith(low));
      if (!found.length) return close();
      chosen = 0;
      list.replaceChildren(...found.map((one, place) => {
        const item = document.createElement("li");
        item.id = `choice-${place}`;
        item.role = "option";
        const code = document.createElement("b");
        code.textContent = one.text;
        item.append(code, one.note ? ` ${one.note}` : "");
        item.addEventListener("mousedown", (event) => {
          event.preventDefault();
          take(place, word);
        });
        return item;
      }));
      list.dataset.word = word;
      list.hidden = false;
      mark();
    }

    function mark() {
      [...list.children].forEach((one, place) => one.setAttribute("aria-selected", String(place === chosen)));
      list.children[chosen]?.scrollIntoView({ block: "nearest" });
      editor.setAttribute("aria-activedescendant", `choice-${chosen}`);
    }

    function take(place, word) {
      const end = editor.selectionStart;
      editor.setRangeText(found[place].text, end - word.length, end, "end");
      editor.dispatchEvent(new Event("change"));
      close();
    }

    // Inserts text at the cursor, or in place of the selection, as if the person had typed it, so that it can be
    // undone.
    function write(text) {
      editor.focus();
      document.execCommand("insertText", false, text);
      close();
    }

    // Returns a call to a tool, with the required parameters. For a context, returns only the tool's name.
    function callOf(tool) {
      const needed = tool.parameters.filter((one) => one.note.endsWith(", required")).map((one) => one.name);
      if (editor.form.elements.kind.value === "context") return tool.name;
      if (isProgram()) return `await ${tool.program}(${needed.map((name) => `${name}=`).join(", ")})`;
      return `{${[`"_tool": ${JSON.stringify(tool.name)}`, ...needed.map((name) => `${JSON.stringify(name)}: `)].join(", ")}}`;
    }

    function listTools() {
      const section = document.querySelector("[data-tools]");
      const search = document.createElement("input");
      search.type = "search";
      search.placeholder = "Search tools";
      search.setAttribute("aria-label", "Search tools");
      const groups = document.createElement("div");
      groups.className = "tool-list";
      groups.role = "group";
      groups.setAttribute("aria-label", "Tools");
      const fill = () => {
        const words = search.value.toLowerCase();
        const offered = isProgram() ? tools.filter((one) => one.program) : tools;
        const fitting = offered.filter((one) => `${one.name} ${one.description}`.toLowerCase().includes(words));
        count.textContent = words ? `${fitting.length} of ${offered.length} tools` : `${offered.length} tools`;
        const byGroup = new Map();
        for (const tool of fitting) byGroup.set(tool.group || "", [...(byGroup.get(tool.group || "") || []), tool]);
        let room = MOST_TOOLS;
        let roomOfOpen = MOST_OPEN;
        groups.replaceChildren(...[...byGroup].map(([name, members]) => {
          const fits = !members[0].is_built_in && members.length <= roomOfOpen;
          const isOpen = fits || Boolean(words) || byGroup.size === 1;
          const group = groupOf(name, members, members.slice(0, room), isOpen);
          room = Math.max(0, room - members.length);
          if (isOpen) roomOfOpen -= members.length;
          return group;
        }));
        const left = Math.max(0, fitting.length - MOST_TOOLS);
        more.textContent = left ? `${left} more: search for them.` : "";
        if (!fitting.length) more.textContent = "No tool has these words.";
      };
      const groupOf = (name, members, shown, isOpen) => {
        const group = document.createElement("details");
        group.open = isOpen;
        const number = document.createElement("span");
        number.className = "dim";
        number.textContent = members.length;
        const summary = document.createElement("summary");
        summary.append(name, " ", number);
        const list = document.createElement("ul");
        list.append(...shown.map(rowOf));
        group.append(summary, list);
        return group;
      };
      const rowOf = (tool) => {
        const row = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.className = "plain";
        button.textContent = tool.name;
        button.title = "Write it into the editor";
        button.addEventListener("click", () => write(callOf(tool)));
        const about = document.createElement("span");
        about.className = "sub dim";
        about.append(...coded(tool.description));
        row.append(button, about);
        if (tool.page) {
          const form = document.createElement("a");
          form.href = `${root}/${tool.page}`;
          form.textContent = "Try it";
          form.setAttribute("aria-label", `Try ${tool.name}`);
          row.insertBefore(form, about);
        }
        return row;
      };
      const more = document.createElement("p");
      more.className = "hint";
      const count = section.querySelector("h2");
      search.addEventListener("input", fill);
      fill();
      section.replaceChildren(count, search, groups, more);
      section.removeAttribute("data-tools");
    }

    editor.addEventListener("input", complete);
    editor.addEventListener("blur", close);
    editor.addEventListener("completed", close);
    editor.addEventListener("keydown", (event) => {
      if (event.key === " " && event.ctrlKey) {
        event.preventDefault();
        complete();
      } else if (!list.hidden && event.key === "Escape") {
        close();
      } else if (!list.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
        event.preventDefault();
        chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
        mark();
      } else if (!list.hidden && event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        take(chosen, list.dataset.word);
      }
    });
  }

  // -- the button of the import says how many servers are chosen ----------------------------------------------------

  const counting = document.querySelector("[data-counts]");
  if (counting) {
    const count = () => {
      const chosen = counting.form.querySelectorAll("[name=which]:checked, [name^='replace.'][value=yes]:checked").length;
      const servers = chosen === 1 ? "1 server" : `${chosen} servers`;
      counting.textContent = chosen ? `Import ${servers}` : "Import";
    };
    counting.form.addEventListener("change", count);
    count();
  }
})();
