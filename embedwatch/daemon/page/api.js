// What is asked of the daemon. Paths are relative, so that the page also works behind a proxy that adds a prefix.
const PATIENCE = 10_000;
const SECRET = "embedwatch.authorization";

export class NotAllowed extends Error {}
export class NotFound extends Error {}

let secret = sessionStorage.getItem(SECRET) || "";

// Remember until the tab is closed who is looking: a token, or a name with a password.
export function signIn(name, word) {
  const bytes = new TextEncoder().encode(`${name}:${word}`);
  secret = name ? `Basic ${btoa(String.fromCharCode(...bytes))}` : `Bearer ${word}`;
  sessionStorage.setItem(SECRET, secret);
}

export function signOut() {
  secret = "";
  sessionStorage.removeItem(SECRET);
}

export const signedIn = () => secret !== "";

export async function ask(path) {
  const headers = { Accept: "application/json", "X-Embedwatch-Page": "1" };
  if (secret) headers.Authorization = secret;
  const reply = await fetch(`api/v1/${path}`, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (reply.status === 401) throw new NotAllowed();
  if (reply.status === 404) throw new NotFound();
  if (!reply.ok) throw new Error(`the daemon answers ${reply.status} to ${path}`);
  return reply.json();
}

// The path below which a Space is asked for.
export function pathOf(what, space) {
  const more = new URLSearchParams({ segment: space.segment });
  if (space.head !== undefined) more.set("head", space.head);
  const model = space.model.split("/").map(encodeURIComponent).join("/");
  return `${what}/${model}/${encodeURIComponent(space.place)}?${more}`;
}
