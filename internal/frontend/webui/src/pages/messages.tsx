// The messages of one partition, the newest first, consumed or not, without a channel noticing.
import { useEffect, useState } from "preact/hooks";
import { Failed, address, get, useData } from "../api";
import { Input } from "../action";
import { count, hex, plural } from "../format";
import { Publish } from "../operations";
import { link, to, type Route } from "../route";
import { useClock } from "../settings";
import { Crumbs, Mark, Title } from "../ui";
import type { Peeked, PeekedMessage, TopicDetail } from "../types";

type View = "text" | "json" | "hex";

function bytesOf(m: PeekedMessage): Uint8Array {
  if (m.body_base64 !== undefined) return Uint8Array.from(atob(m.body_base64), c => c.charCodeAt(0));
  return new TextEncoder().encode(m.body ?? "");
}

function bodyAs(m: PeekedMessage, view: View): string {
  if (view === "hex") return hex(bytesOf(m));
  const text = m.body ?? new TextDecoder().decode(bytesOf(m));
  if (view === "text") return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return `Not JSON: ${text}`; }
}

// read also finds the newest messages: the API itself begins after them.
async function read(topic: string, partition: number, from: string, limit: number, signal: AbortSignal): Promise<Peeked> {
  const ask = (from: string) => get<Peeked>("v1/topic/peek", { topic, partition, from, limit }, signal);
  if (from !== "latest") return ask(from);
  const end = await ask("latest");
  return ask(String(Math.max(end.start, end.end - limit)));
}

export function MessagesPage({ topic, route }: { topic: string; route: Route }) {
  const q = route.query, partition = Number(q.get("partition")) || 0, from = q.get("from") || "latest", limit = Math.min(1000, Number(q.get("limit")) || 20), view = (q.get("view") ?? "text") as View;
  const detail = useData<TopicDetail>(address("v1/console/topic", { topic }), 30000);
  const [form, setForm] = useState({ partition: String(partition), from: /^(earliest|latest)$/.test(from) ? from : "other", place: /^(earliest|latest)$/.test(from) ? "" : from, limit: String(limit) });
  const [state, set] = useState<{ peeked?: Peeked; error?: string }>({}), [turn, again] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    set(s => ({ peeked: s.peeked }));
    read(topic, partition, from, limit, abort.signal).then(peeked => set({ peeked }), e => { if (!abort.signal.aborted) set({ error: e instanceof Failed ? e.message : String(e) }); });
    return () => abort.abort();
  }, [topic, partition, from, limit, turn]);
  const go = (change: Record<string, string | number>) => { location.hash = link(["topic", topic, "messages"], { partition, from, limit, view, ...change }); };
  const show = (e: SubmitEvent) => {
    e.preventDefault();
    const place = form.from === "other" ? form.place.trim() || "earliest" : form.from;
    go({ partition: form.partition, from: place, limit: form.limit });
    again(n => n + 1);
  };
  const field = (name: keyof typeof form) => ({ value: form[name], onChange: (v: string) => setForm(f => ({ ...f, [name]: v })) });
  const partitions = detail.data?.partitions.length ?? partition + 1, p = state.peeked;
  return <>
    <Crumbs items={[["Topics", "#/topics"], [topic, to.topic(topic)]]} />
    <Title text={`Messages of ${topic}`}><div class="actions"><Publish topic={topic} done={() => again(n => n + 1)} /></div></Title>
    <form class="tools" onSubmit={show} aria-label="Which messages">
      <Input field={{ name: "partition", label: "Partition", options: Array.from({ length: partitions }, (_, i) => [String(i), String(i)]) }} {...field("partition")} />
      <Input field={{ name: "from", label: "From", options: [["latest", "the newest"], ["earliest", "the oldest retained"], ["other", "time or sequence"]] }} {...field("from")} />
      {form.from === "other" && <Input field={{ name: "place", label: "Time or sequence", required: true, hint: "For example 2026-11-23T03:00:00Z, or 1200." }} {...field("place")} />}
      <Input field={{ name: "limit", label: "At most", number: true, required: true }} {...field("limit")} />
      <button type="submit" class="main">Show</button>
    </form>
    <fieldset class="views"><legend>Show bodies as</legend>{(["text", "json", "hex"] as View[]).map(v =>
      <label key={v} class="check"><input type="radio" name="view" value={v} checked={view === v} onChange={() => go({ view: v })} /> {v === "json" ? "JSON" : v}</label>)}</fieldset>
    {state.error && <p class="note bad" role="alert">{state.error}</p>}
    {!p && !state.error && <p class="dim" role="status">Loading …</p>}
    {p && <>
      <p class="dim" role="status">{p.end > p.start ? `${topic}/${partition} retains sequences ${count(p.start)} to ${count(p.end - 1)}; ${plural(p.messages.length, "message")} shown.` : `${topic}/${partition} retains no messages.`}</p>
      <ol class="messages">{p.messages.toReversed().map(m => <Message key={m.id} m={m} view={view} />)}</ol>
      <div class="actions">
        {p.next < p.end && <button type="button" onClick={() => go({ from: p.next })}>Newer</button>}
        {p.messages.length > 0 && p.messages[0].sequence > p.start && <button type="button" onClick={() => go({ from: Math.max(p.start, p.messages[0].sequence - limit) })}>Older</button>}
      </div>
    </>}
  </>;
}

function Message({ m, view }: { m: PeekedMessage; view: View }) {
  const clock = useClock(), size = bytesOf(m).length, later = m.deliver_at && m.deliver_at / 1e6 > Date.now();
  const headers = m.header && typeof m.header === "object" ? Object.entries(m.header as Record<string, unknown>) : [];
  return <li class="message">
    <div class="head"><strong>{count(m.sequence)}</strong> <span>{clock(m.timestamp / 1e6)}</span> <span class="dim">{plural(size, "byte")}</span> <code class="dim">{m.id}</code>
      {later ? <Mark state="degraded" text={`delayed until ${clock(m.deliver_at! / 1e6)}`} /> : null}</div>
    {headers.length > 0 && <dl class="headers">{headers.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{typeof value === "string" ? value : JSON.stringify(value)}</dd></div>)}</dl>}
    <pre tabIndex={0} role="region" aria-label={`Body of message ${m.sequence}`}>{bodyAs(m, view)}</pre>
  </li>;
}
