"use strict";

const byId = id => document.getElementById(id);
const say = text => { byId("said").textContent = text; };

// A path of this server. Anything else would lead to another site.
function target() {
  const to = new URLSearchParams(location.search).get("to") || "/";
  const url = new URL(to, location.origin);
  return url.origin === location.origin && to.startsWith("/") ? url.pathname + url.search : "/";
}

async function send(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (answer.ok) return null;
  const problem = await answer.json().catch(() => ({}));
  return `${problem.what || "The server refused this"}: ${problem.help || answer.status}.`;
}

byId("form").addEventListener("submit", async event => {
  event.preventDefault();
  say("");
  try {
    const refused = await send("/signin", { user: byId("user").value, password: byId("password").value });
    if (refused) say(refused);
    else location.replace(target());
  } catch {
    say("The server cannot be reached.");
  }
});

byId("out").addEventListener("click", async () => {
  try {
    say(await send("/signout", {}) || "You are signed out.");
  } catch {
    say("The server cannot be reached.");
  }
});
