// The page: asks the daemon every few seconds while somebody looks, and draws what is known.
import { NotAllowed, NotFound, ask, pathOf, signIn, signOut, signedIn } from "./api.js";
import { html } from "./html.js";
import { Overview } from "./overview.js";
import { Component, render } from "./preact.js";
import { SpaceView } from "./space.js";
import { Badge } from "./small.js";
import { ago, clock, count, duration, keyOf, worst } from "./words.js";

const LOOK = 3_000;
const WHOLE = 15_000;

function routeOf(hash) {
  if (!hash.startsWith("#/space?")) return null;
  const { model = "", place = "", segment = "all", head } = Object.fromEntries(new URLSearchParams(hash.slice("#/space?".length)));
  return head === undefined ? { model, place, segment } : { model, place, segment, head };
}

class Page extends Component {
  constructor() {
    super();
    this.state = {
      access: "waiting", // then allowed, refused or away
      route: routeOf(location.hash),
      status: null,
      spaces: [],
      verdicts: [],
      changes: [],
      failures: [],
      detail: null,
      chosen: null,
      query: "",
      layout: "pca",
      heard: null,
    };
    this.set = (some) => {
      this.setState(some);
      if (some.layout) setTimeout(() => this.look());
    };
    this.seen = "";
    this.read = 0;
  }

  componentDidMount() {
    addEventListener("hashchange", () => {
      const route = routeOf(location.hash);
      this.arrived = true;
      this.setState({ route, detail: null });
      scrollTo(0, 0);
      this.look(true);
    });
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    this.look(true);
  }

  componentDidUpdate() {
    const { route, spaces } = this.state;
    const grave = spaces.filter((each) => ["fail", "warn"].includes(worst(each.counts))).length;
    document.title = `${grave ? `(${grave}) ` : ""}${route ? `${route.model} / ${route.place} – ` : ""}embedwatch`;
    const title = document.getElementById("title");
    if (this.arrived && title) {
      this.arrived = false;
      title.focus({ preventScroll: true });
    }
  }

  // Ask, and ask again in a while; a hidden page rests.
  async look(whole = false) {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn || 0) + 1);
    if (!document.hidden || whole) {
      try {
        await this.ask(turn, whole);
      } catch (error) {
        if (turn !== this.turn) return;
        if (error instanceof NotAllowed) {
          this.setState({ access: "refused", wrong: signedIn() });
          signOut();
          return;
        }
        this.setState({ access: "away" });
      }
    }
    if (turn === this.turn) this.timer = setTimeout(() => this.look(), LOOK);
  }

  async ask(turn, whole) {
    const status = await ask("status");
    const seen = `${status.rounds} ${status.spaces}`;
    const late = Date.now() - this.read > WHOLE;
    const some = { status, access: "allowed", heard: status.time };
    if (whole || late || seen !== this.seen || this.state.access !== "allowed") {
      const [spaces, fails, warns, changes, failures] = await Promise.all(
        ["spaces", "verdicts?status=fail", "verdicts?status=warn", "changes", "failures"].map(ask),
      );
      Object.assign(some, { spaces, verdicts: [...fails, ...warns], changes, failures });
      this.seen = seen;
      this.read = Date.now();
    }
    if (this.state.route) some.detail = await this.askSpace(this.state.route);
    if (turn === this.turn) this.setState(some);
  }

  async askSpace(route) {
    const before = this.state.detail;
    try {
      const told = await ask(pathOf("spaces", route));
      const same = before && !before.gone && keyOf(before.told.space) === keyOf(told.space);
      const course = same && before.told.time === told.time ? before.course : await ask(pathOf("courses", route));
      const layout = this.state.layout;
      const drawn = told.map ? `${told.map.time} ${told.map.spread} ${layout}` : "";
      const map = !drawn ? null : same && before.drawn === drawn ? before.map : await ask(`${pathOf("maps", route)}&layout=${layout}`);
      return { told, course, map, drawn };
    } catch (error) {
      if (error instanceof NotFound) return { gone: true };
      throw error;
    }
  }

  render(_, state) {
    const { access, status, route } = state;
    return html`
      <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
      <${Top} state=${state} again=${() => { signOut(); this.look(true); }} />
      <main id="main" tabindex="-1" class=${access === "away" ? "old" : ""}>
        ${access === "away" && html`<${Away} state=${state} />`}
        ${access === "refused" && html`<${SignIn} wrong=${state.wrong} enter=${(name, word) => { signIn(name, word); this.look(true); }} />`}
        ${access === "waiting" && html`<p class="muted" aria-busy="true">Asking the daemon…</p>`}
        ${status && access !== "refused" && html`${!route && html`<h1 id="title" tabindex="-1" class="hidden">All Spaces</h1>`}
        ${!status.ready && html`<p class="banner warn" role="status">The daemon starts or ends: nothing is taken now.</p>`}
        ${!status.beating && html`<p class="banner fail" role="alert">Judging does not go on: what is shown here does not change any more. The log of the daemon says why.</p>`}
        ${route ? html`<${SpaceView} state=${state} set=${this.set} />` : html`<${Overview} state=${state} set=${this.set} />`}`}
      </main>
      <footer class="muted small">
        ${status && `embedwatch ${status.version} · windows close every ${duration(status.interval_seconds)} · ${count(status.rounds, "round")} since the start · `}
        <a href="metrics">metrics</a> · <a href="openapi.json">API</a>
      </footer>
    `;
  }
}

function Top({ state, again }) {
  const { access, spaces, status } = state;
  const grave = spaces.filter((each) => ["fail", "warn"].includes(worst(each.counts)));
  const worstOf = worst(Object.fromEntries(spaces.map((each) => [worst(each.counts), 1])));
  const all = count(spaces.length, "Space");
  const sentence = !spaces.length ? "no Spaces yet" : grave.length ? `${grave.length} of ${all} ${grave.length === 1 ? "needs" : "need"} a look` : `${all}, none needs a look`;
  const badge = access === "away" ? { status: "unknown", words: `${sentence}, when last heard` } : { status: spaces.length ? worstOf : "unknown", words: sentence };
  return html`<header class="top">
    <a class="brand" href="#/"><img src="page/icon.svg" alt="" width="28" height="28" />embedwatch</a>
    <p class="sentence" role="status">${status && access !== "refused" && html`<${Badge} ...${badge} />`}</p>
    <p class="live small">
      ${access === "allowed" && html`<span class="dot on" aria-hidden="true"></span>live`}
      ${access === "away" && html`<span class="dot off" aria-hidden="true"></span>not connected`}
      ${access === "allowed" && signedIn() && html` · <button type="button" class="link" onClick=${again}>sign out</button>`}
    </p>
  </header>`;
}

function Away({ state }) {
  const since = state.heard === null ? "" : ` What is shown is of ${clock(state.heard)} (${ago(state.heard, Date.now() / 1000)}).`;
  return html`<p class="banner fail" role="alert"><strong>The daemon does not answer.</strong>${since} The page asks again every ${LOOK / 1000} seconds.</p>`;
}

function SignIn({ wrong, enter }) {
  const submit = (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    enter(fields.get("name").trim(), fields.get("word"));
  };
  return html`<section class="card notice">
    <h1 id="title" tabindex="-1">Who is looking?</h1>
    <p>This daemon lets in only those that it knows. A token is one line of its <code>web.auth.token_file</code>; a name and a password are of its <code>web.auth.users_file</code>.</p>
    ${wrong && html`<p class="banner fail" role="alert">That did not open. Check the spelling, and whether the file was read again.</p>`}
    <form onSubmit=${submit}>
      <label>Name <span class="muted small">(leave it empty for a token)</span><input name="name" autocomplete="username" autocapitalize="none" spellcheck=${false} /></label>
      <label>Token or password<input name="word" type="password" required autocomplete="current-password" /></label>
      <button type="submit" class="primary">Look</button>
    </form>
    <p class="muted small">It is kept in this tab until that is closed, and sent to this daemon alone.</p>
  </section>`;
}

render(html`<${Page} />`, document.getElementById("app"));
