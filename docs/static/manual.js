// Copy buttons on code, and excerpts below search results. Works from files, without a server: nothing is fetched.
"use strict";

const EXCERPT = 200;

function addCopyButton(block) {
  const code = block.querySelector("pre");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copyText(code.textContent.replace(/\n$/, ""));
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  block.append(button);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A browser that gives pages in files no clipboard: the old way.
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

function excerpt(text, words) {
  const lower = text.toLowerCase();
  const places = words.map((word) => lower.indexOf(word.toLowerCase())).filter((place) => place >= 0);
  const begin = places.length ? Math.max(0, Math.min(...places) - EXCERPT / 4) : 0;
  return (begin ? "… " : "") + text.slice(begin, begin + EXCERPT).trim() + " …";
}

function addExcerpt(item, words) {
  const link = item.querySelector("a");
  const page = link && link.getAttribute("href").replace(/\.html(?:#.*)?$/, "");
  // PAGE_TEXTS is in page-texts.js, which only the page of the search loads.
  if (!page || !PAGE_TEXTS[page] || item.querySelector(".context")) return;
  const paragraph = document.createElement("p");
  paragraph.className = "context";
  paragraph.textContent = excerpt(PAGE_TEXTS[page], words);
  item.append(paragraph);
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("div[class*='highlight-']:not(.highlight-text) > .highlight").forEach(addCopyButton);
  const results = document.getElementById("search-results");
  if (!results) return;
  const words = (new URLSearchParams(location.search).get("q") || "").split(/\s+/).filter(Boolean);
  new MutationObserver(() => results.querySelectorAll("li").forEach((item) => addExcerpt(item, words))).observe(results, {
    childList: true,
    subtree: true,
  });
});
