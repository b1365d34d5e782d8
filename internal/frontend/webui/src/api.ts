// Requests to the broker that serves the page, and whether it answers.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { count } from "./format";

// Failed is a request that has no good answer. status 0: the broker did not answer.
export class Failed extends Error {
  constructor(readonly status: number, readonly code: string, text: string) { super(text); }
}

type Arguments = Record<string, string | number | boolean | string[] | undefined>;

export function address(path: string, values: Arguments = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (Array.isArray(value)) value.forEach(v => q.append(name, v));
    else if (value !== undefined) q.append(name, String(value));
  }
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

// sentences are for the codes of the API about which the page can say more than the broker's own detail.
const sentences: Record<string, string> = {
  UNAUTHORIZED: "You are not signed in to this cluster.",
  FORBIDDEN: "You do not have the right to do this. An administrator can grant it: nsqctl acl grant --help.",
  TOO_MANY_BAD_LOGINS: "Too many sign-ins from your address wait for the authorization service: try again.",
  LOGIN_DISABLED: "This cluster has no users: everybody may do everything, without signing in.",
  AUTH_UNAVAILABLE: "Nobody can sign in now: the authorization service or the metadata does not answer. Try again.",
  CROSS_ORIGIN: "The broker refused the request, because it came from another page. Open the console under the broker's own address.",
  HOST_NOT_ALLOWED: "The broker does not know the name in the address bar. Open the console under the broker's own address, or add the name to --http-allowed-host.",
  TOPIC_NOT_FOUND: "There is no such topic. Deleted topics stay in the trash for a while: see the page Operations.",
  NOT_FOUND: "This broker does not have that.",
};

async function failure(answer: Response): Promise<Failed> {
  let code = "", detail: string | undefined;
  try {
    ({ message: code = "", detail } = await answer.json() as { message?: string; detail?: string });
  } catch { /* no JSON */ }
  const said = detail ?? code;
  const text = sentences[code] ?? (said ? said[0].toUpperCase() + said.slice(1) + (/[.!?]$/.test(said) ? "" : ".") : `The broker refused this with the HTTP status ${answer.status}.`);
  return new Failed(answer.status, code, text);
}

// Session is the answer of /v1/session: the identity that this browser has at this broker.
export interface Session { enforced: boolean; begun?: boolean; identity: string; signed_in: boolean; expires_ms?: number | null; observe: boolean; administer: boolean }

// Reason is why the page shows the sign-in. asked: the reader pressed the button.
export type Reason = "" | "first" | "ended" | "rights" | "out" | "asked";

// link tells whether this broker answers, and to whom. since is the time of its last answer while it does not.
export interface Link { since: number | null; lastAnswer: number | null; signIn: Reason; session?: Session }
let link: Link = { since: null, lastAnswer: null, signIn: "" };
const watchers = new Set<(l: Link) => void>();

function setLink(change: Partial<Link>) {
  const next = { ...link, ...change };
  const told = next.since !== link.since || next.signIn !== link.signIn || next.session !== link.session;
  link = next;
  if (told) watchers.forEach(w => w(link));
}

export function useLink(): Link {
  const [l, set] = useState(link);
  useEffect(() => {
    set(link);
    watchers.add(set);
    return () => { watchers.delete(set); };
  }, []);
  return l;
}

export function askToSignIn(wanted: boolean) { setLink({ signIn: wanted ? "asked" : "" }); }

const limit = 10000; // ms; the broker itself asks the others for a second

// send throws Failed for every answer that is not good.
async function send(url: string, init: RequestInit, signal?: AbortSignal): Promise<Response> {
  const timeout = AbortSignal.timeout(limit);
  let answer: Response;
  try {
    answer = await fetch(url, { cache: "no-store", credentials: "same-origin", ...init, signal: signal ? AbortSignal.any([signal, timeout]) : timeout });
  } catch (e) {
    if (signal?.aborted) throw e;
    setLink({ since: link.since ?? link.lastAnswer ?? Date.now() });
    throw new Failed(0, "", "This broker does not answer.");
  }
  setLink({ since: null, lastAnswer: Date.now() });
  if (!answer.ok) throw await failure(answer);
  return answer;
}

// ask is send for requests that take a right. Without it, the page shows the sign-in.
async function ask(url: string, init: RequestInit, signal?: AbortSignal): Promise<Response> {
  try {
    return await send(url, init, signal);
  } catch (e) {
    if (e instanceof Failed && e.status === 401 && !link.signIn) { // the cluster may have got its first user in between
      const reason: Reason = link.session?.signed_in ? "ended" : "first";
      await whoAmI(reason).catch(() => setLink({ signIn: reason }));
    }
    if (e instanceof Failed && e.code === "FORBIDDEN") await whoAmI().catch(() => {}); // the right to observe may be gone
    throw e;
  }
}

// A browser signs in with a token, once. From then on the broker knows it by a cookie that no script can read.
let ends: ReturnType<typeof setTimeout> | undefined;
let leaving = false; // this page signed out: a request that was in progress then is refused for that reason

// whoAmI asks the broker for the identity of this browser. It shows the sign-in if that identity may not observe.
export async function whoAmI(otherwise: Reason = ""): Promise<Session> {
  let session: Session;
  try {
    session = await (await send("v1/session", {})).json() as Session;
  } catch (e) {
    if (!(e instanceof Failed) || e.status !== 404) throw e; // a broker without sign-ins
    session = { enforced: false, identity: "anonymous", signed_in: false, observe: true, administer: true };
  }
  const closed = session.enforced && !session.observe;
  const reason: Reason = session.signed_in ? "rights" : leaving ? "out" : otherwise || (link.session?.signed_in ? "ended" : link.signIn || "first");
  clearTimeout(ends);
  if (session.expires_ms) ends = setTimeout(() => void whoAmI().catch(() => {}), Math.max(session.expires_ms - Date.now(), 0) + 1000);
  setLink({ session, signIn: closed ? reason : link.signIn === "asked" && !session.signed_in ? "asked" : "" });
  return session;
}

// signIn exchanges a token for a cookie. The page does not keep the token.
export async function signIn(token: string): Promise<void> {
  const session = await (await send("v1/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } })).json() as Session;
  if (!session.observe) {
    await send("v1/session/logout", { method: "POST" }).catch(() => {});
    throw new Failed(403, "FORBIDDEN", `The user ${session.identity} may not observe the cluster. An administrator can allow it: nsqctl acl grant ${session.identity} --cluster observe.`);
  }
  const seen = await (await send("v1/session", {})).json() as Session;
  if (!seen.signed_in) throw new Failed(0, "", "The broker signed you in, but this browser did not keep its cookie. Allow cookies for this address, and sign in again.");
  leaving = false;
  await whoAmI();
}

// signOut ends the sign-in at the broker, which also removes the cookie.
export async function signOut(): Promise<void> {
  leaving = true;
  try {
    await send("v1/session/logout", { method: "POST" });
  } catch (e) {
    if (!(e instanceof Failed) || e.status !== 401) { // else it had ended already
      leaving = false;
      throw e;
    }
  }
  await whoAmI("out");
}

export async function get<T>(path: string, values?: Arguments, signal?: AbortSignal): Promise<T> {
  return (await ask(address(path, values), {}, signal)).json() as Promise<T>;
}

// post returns the JSON of the answer, undefined if it has none.
export async function post<T = unknown>(path: string, values?: Arguments, init: RequestInit = {}): Promise<T | undefined> {
  const answer = await ask(address(path, values), { method: "POST", ...init });
  const text = await answer.text();
  try {
    return JSON.parse(text) as T;
  } catch {
    return undefined;
  }
}

export interface Data<T> { data?: T; error?: Failed; at?: number; refresh: () => void }

// refreshAll reads all that is shown again, after an action: at once, and when what brokers share between viewers
// is of after the action.
const shared = 1200; // ms; console.tableFor is a second
const refreshers = new Set<() => void>();
export function refreshAll() {
  const all = () => refreshers.forEach(r => r());
  all();
  setTimeout(all, shared);
}

// useData polls a URL while the page is visible. After an error the last data stay.
export function useData<T>(url: string | null, every: number): Data<T> {
  const [state, set] = useState<{ url: string | null; data?: T; error?: Failed; at?: number }>({ url });
  const again = useRef(() => {});
  useEffect(() => {
    if (url === null) return;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined, running = false, wanted = false;
    const turn = async () => {
      clearTimeout(timer);
      if (running) { wanted = true; return; }
      running = true;
      try {
        const data = await get<T>(url, undefined, abort.signal);
        if (!abort.signal.aborted) set({ url, data, at: Date.now() });
      } catch (e) {
        if (abort.signal.aborted) return;
        const error = e instanceof Failed ? e : new Failed(0, "", `The page cannot show this: ${e}`);
        set(s => ({ ...(s.url === url ? s : {}), url, error }));
      }
      running = false;
      if (abort.signal.aborted) return;
      timer = setTimeout(turn, wanted ? 0 : document.hidden ? every * 10 : every);
      wanted = false;
    };
    again.current = turn;
    const seen = () => { if (!document.hidden) void turn(); };
    refreshers.add(turn);
    document.addEventListener("visibilitychange", seen);
    void turn();
    return () => {
      abort.abort();
      clearTimeout(timer);
      refreshers.delete(turn);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [url, every]);
  const refresh = useCallback(() => again.current(), []);
  return state.url === url ? { data: state.data, error: state.error, at: state.at, refresh } : { refresh };
}

export function silentBrokers(list: { broker: string; reason: string }[] | undefined): string {
  if (!list?.length) return "";
  // "dead" is also the reason of a broker that is registered and cut off, or hangs: the alarms say which.
  const names = list.map(u => u.reason === "dead" ? u.broker : `${u.broker} (${u.reason})`).join(", ");
  return `No answer from ${list.length === 1 ? "broker" : `${count(list.length)} brokers:`} ${names}. The numbers do not include ${list.length === 1 ? "it" : "them"}.`;
}
