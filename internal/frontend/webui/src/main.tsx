// The console's frame: navigation, sign-in, and which page is shown.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askToSignIn, Failed, get, refreshAll, signIn, signOut, useLink, whoAmI, type Link, type Reason } from "./api";
import { clock, seconds } from "./format";
import { useRoute, type Route } from "./route";
import { SettingsContext, store, stored, type Theme } from "./settings";
import type { Broker } from "./types";
import { Title } from "./ui";
import { BrokerPage, BrokersPage } from "./pages/brokers";
import { ChannelPage } from "./pages/channel";
import { EventsPage } from "./pages/events";
import { MessagesPage } from "./pages/messages";
import { OperationsPage } from "./pages/operations";
import { Overview } from "./pages/overview";
import { PartitionPage, TopicPage } from "./pages/topic";
import { ChannelsPage, TopicsPage } from "./pages/topics";
import "./app.css";

function Page({ route }: { route: Route }) {
  const [kind, name, part, item] = route.path;
  switch (kind) {
    case undefined: return <Overview />;
    case "topics": return <TopicsPage route={route} />;
    case "channels": return <ChannelsPage route={route} />;
    case "brokers": return <BrokersPage />;
    case "events": return <EventsPage route={route} />;
    case "operations": return <OperationsPage />;
    case "broker": if (name) return <BrokerPage key={name} name={name} />; break;
    case "topic":
      if (name && !part) return <TopicPage key={name} topic={name} />;
      if (name && part === "channel" && item) return <ChannelPage key={`${name}/${item}`} topic={name} channel={item} />;
      if (name && part === "partition" && /^\d+$/.test(item ?? "")) return <PartitionPage key={`${name}/${item}`} topic={name} partition={Number(item)} />;
      if (name && part === "messages") return <MessagesPage key={name} topic={name} route={route} />;
  }
  return <><Title text="No such page" /><p>The console has no page at this address. <a href="#/">Go to the overview.</a></p></>;
}

const pages: [string, string, string[]][] = [
  ["Overview", "#/", [""]], ["Topics", "#/topics", ["topics", "topic"]], ["Channels", "#/channels", ["channels"]],
  ["Brokers", "#/brokers", ["brokers", "broker"]], ["Events", "#/events", ["events"]], ["Operations", "#/operations", ["operations"]],
];

// intro says why the page shows the sign-in.
function intro(reason: Reason, user: string, begun: boolean): string {
  if (!begun) return "This cluster is closed until it has an administrator. On the machine of a broker: nsqctl user create root --admin. Then sign in with the token that it prints.";
  switch (reason) {
    case "ended": return "Your sign-in has ended: after 12 hours, when the token or your address changes, and when this broker starts again. Sign in again; the page continues where you were.";
    case "rights": return `The user ${user} may not observe the cluster. An administrator can allow it: nsqctl acl grant ${user} --cluster observe. Or sign in as another user.`;
    case "out": return "You are signed out of this broker.";
    default: return "This cluster has users. Sign in with the token of one that may observe it.";
  }
}

function SignIn({ link }: { link: Link }) {
  const [token, set] = useState(""), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const attempt = async (f: () => Promise<unknown>) => {
    setBusy(true);
    setError("");
    try {
      await f();
      refreshAll();
    } catch (e) {
      setError(e instanceof Failed ? (e.status === 401 ? "The cluster does not know this token." : e.message) : String(e));
    }
    setBusy(false);
  };
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    void attempt(async () => { await signIn(token.trim()); set(""); });
  };
  const closed = link.session?.begun === false;
  useEffect(() => { // the administrator may be on the way to this broker
    if (!closed) return;
    const again = setInterval(() => void whoAmI(link.signIn).catch(() => {}), 2000);
    return () => clearInterval(again);
  }, [closed]);
  useEffect(() => { // a tab that comes to the front asks again: the right may be granted by now, or the sign-in over
    if (link.signIn !== "rights") return;
    const seen = () => { if (!document.hidden) void whoAmI().catch(() => {}); };
    document.addEventListener("visibilitychange", seen);
    return () => document.removeEventListener("visibilitychange", seen);
  }, [link.signIn]);
  const user = link.session?.identity ?? "";
  return <><Title text="Sign in" />
    <p class={link.signIn === "rights" ? "note bad" : ""}>{intro(link.signIn, user, !closed)}</p>
    <p>The sign-in holds for this broker, in all tabs of this browser, for 12 hours. The browser keeps a cookie that no page can read, and not the token.</p>
    <form onSubmit={submit} class="signin">
      <div class="field"><label for="token">Token</label><input id="token" type="password" autocomplete="current-password" required value={token} onInput={e => set(e.currentTarget.value)} /></div>
      {error && <p class="note bad" role="alert">{error}</p>}
      <div class="buttons">
        <button type="submit" class="main" disabled={busy}>Sign in</button>
        {link.signIn === "asked" && <button type="button" onClick={() => askToSignIn(false)}>Cancel</button>}
        {link.signIn === "rights" && <button type="button" disabled={busy} onClick={() => void attempt(() => whoAmI())}>Try again as {user}</button>}
      </div>
    </form></>;
}

// Identity is the user of this browser, with the way in and out.
function Identity({ link, failed }: { link: Link; failed: (text: string) => void }) {
  const [busy, set] = useState(false);
  const s = link.session;
  if (!s?.enforced || (link.signIn && link.signIn !== "rights")) return null;
  if (!s.signed_in) return <button type="button" onClick={() => askToSignIn(true)}>Sign in</button>;
  const leave = async () => {
    set(true);
    try {
      await signOut();
      failed("");
    } catch (e) {
      failed(`You are still signed in. ${e instanceof Failed ? e.message : e}`);
    }
    set(false);
  };
  return <><span class="user"><span class="hidden">User </span>{s.identity}</span><button type="button" disabled={busy} onClick={() => void leave()}>Sign out</button></>;
}

// Unanswered shows since when the broker has been silent, and other brokers whose pages work.
function Unanswered({ since, utc }: { since: number; utc: boolean }) {
  const [now, set] = useState(Date.now());
  useEffect(() => { const t = setInterval(() => set(Date.now()), 1000); return () => clearInterval(t); }, []);
  return <div class="note bad unanswered" role="alert"><span aria-hidden="true" class="sign">✕</span>
    <span>No answer from this broker since {clock(since, utc)}<span aria-hidden="true"> ({seconds((now - since) / 1000)})</span>. The page shows the state at that time, and retries. <Others /></span></div>;
}

function Others() {
  const others = stored("origins", "").split(" ").filter(o => o && o !== location.origin);
  if (others.length === 0) return <>Another broker's page shows the same cluster.</>;
  return <>The console of other brokers: {others.map((o, i) => <>{i > 0 && ", "}<a href={`${o}/ui${location.hash}`}>{o}</a></>)}.</>;
}

// originOf is where a broker serves this page: over HTTPS if this page came so, and the broker has it.
function originOf(b: Broker): string {
  return location.protocol === "https:" && b.https_address ? `https://${b.https_address}` : `http://${b.http_address}`;
}

function App() {
  const route = useRoute(), link = useLink();
  const [theme, setTheme] = useState(stored("theme", "auto") as Theme), [utc, setUTC] = useState(stored("utc", "") === "yes");
  const [system, setSystem] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  const [notOut, setNotOut] = useState(""), [begun, begin] = useState(false);
  const dark = theme === "dark" || (theme === "auto" && system);
  if (document.documentElement.dataset.theme !== (dark ? "dark" : "light")) document.documentElement.dataset.theme = dark ? "dark" : "light";
  useEffect(() => {
    const m = matchMedia("(prefers-color-scheme: dark)"), changed = () => setSystem(m.matches);
    m.addEventListener("change", changed);
    return () => m.removeEventListener("change", changed);
  }, []);
  useEffect(() => { void whoAmI().catch(() => {}).then(() => begin(true)); }, []);
  const shown = begun && !link.signIn;
  useEffect(() => { // other brokers' addresses, for the time when this one does not answer
    if (shown) get<{ brokers: Broker[] }>("v1/console/brokers").then(b => store("origins", b.brokers.map(originOf).join(" ")), () => {});
  }, [shown]);
  return <SettingsContext.Provider value={{ theme, utc, dark }}>
    <a class="skip" href="#main" onClick={e => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
    <header class="top">
      <a href="#/" class="brand">Lockstep</a>
      <nav aria-label="Pages">{pages.map(([text, href, kinds]) => <a key={href} href={href} aria-current={kinds.includes(route.path[0] ?? "") ? "page" : undefined}>{text}</a>)}</nav>
      <div class="choices">
        <label><span class="hidden">Colours</span><select value={theme} onChange={e => { const t = e.currentTarget.value as Theme; setTheme(t); store("theme", t); }}><option value="auto">auto</option><option value="light">light</option><option value="dark">dark</option></select></label>
        <label><span class="hidden">Time zone</span><select value={utc ? "utc" : "local"} onChange={e => { const u = e.currentTarget.value === "utc"; setUTC(u); store("utc", u ? "yes" : ""); }}><option value="local">local time</option><option value="utc">UTC</option></select></label>
        <Identity link={link} failed={setNotOut} />
      </div>
    </header>
    <main id="main" tabIndex={-1}>
      {link.since !== null && <Unanswered since={link.since} utc={utc} />}
      {notOut && <p class="note bad" role="alert">{notOut}</p>}
      {link.signIn ? <SignIn link={link} /> : begun && <Page route={route} />}
    </main>
    <footer><a href="ui/licences">Licences</a> <span class="dim">Every broker serves this page.</span></footer>
  </SettingsContext.Provider>;
}

render(<App />, document.getElementById("app")!);
