// One channel: its depth, its consumers, its delayed messages and its dead letters.
import { useState } from "preact/hooks";
import { Failed, address, post, useData } from "../api";
import { Action } from "../action";
import { Charts } from "../chart";
import { brief, count, milliseconds, plural, rate, seconds, unknown } from "../format";
import { DeleteChannel, EmptyChannel, Order, PauseChannel, PolicyOf, Redrive, Seek } from "../operations";
import { to } from "../route";
import { useClock } from "../settings";
import { Crumbs, Facts, Loaded, Mark, Silent, Table, Title } from "../ui";
import type { ChannelDetail, ChannelPartition, Connection, Deferred, Policy } from "../types";

function policyText(p: Policy | undefined): string {
  if (!p) return unknown;
  const parts = [p.max_attempts ? plural(p.max_attempts, "attempt") : "unlimited attempts"];
  if (p.dead_letter_topic) parts.push(`then to ${p.dead_letter_topic}`);
  if (p.retry_backoff_ms) parts.push(`after ${milliseconds(p.retry_backoff_ms)}, × ${p.retry_backoff_factor}${p.retry_backoff_max_ms ? `, at most ${milliseconds(p.retry_backoff_max_ms)}` : ""}`);
  return parts.join(", ");
}

function ago(ms: number | null | undefined): string {
  return ms == null ? unknown : `${seconds(Math.max(0, (Date.now() - ms) / 1000))} ago`;
}

export function ChannelPage({ topic, channel }: { topic: string; channel: string }) {
  const of = useData<ChannelDetail>(address("v1/console/channel", { topic, channel }), 3000), clock = useClock(), d = of.data;
  return <>
    <Crumbs items={[["Topics", "#/topics"], [topic, to.topic(topic)]]} />
    <Title text={channel} kind="Channel">{d && (d.channel.paused ? <Mark state="degraded" text="paused" /> : <Mark state={d.channel.clients ? "healthy" : "unknown"} text={d.channel.clients == null ? unknown : plural(d.channel.clients, "consumer")} />)}</Title>
    {d && <div class="actions">
      <PauseChannel topic={topic} channel={channel} paused={d.channel.paused} /><PolicyOf topic={topic} channel={channel} policy={d.policy} /><Order topic={topic} channel={channel} ordered={d.channel.ordered} />
      <Seek topic={topic} channel={channel} partitions={d.partitions.length} /><EmptyChannel topic={topic} channel={channel} /><DeleteChannel topic={topic} channel={channel} />
    </div>}
    <Loaded of={of}>{d => {
      const c = d.channel;
      return <>
        <Silent brokers={d.unreachable} />
        {c.paused && <p class="note warn">The channel is paused: it delivers nothing.</p>}
        {!c.paused && c.clients === 0 && (c.depth ?? 0) > 0 && <p class="note warn">Messages are waiting, and no consumer is connected.</p>}
        <Facts facts={[
          ["Backlog", count(c.depth)], ["In flight", count(c.in_flight)], ["Delayed", count(c.deferred)], ["Lag", seconds(c.lag_seconds)],
          ["Oldest message", d.oldest ? <a href={to.messages(topic, d.oldest.partition, String(d.oldest.sequence))}>{topic}/{d.oldest.partition}, sequence {count(d.oldest.sequence)}, of {clock(d.oldest.time_ms)}</a> : c.lag_seconds == null ? unknown : "none"],
          ["Finished", rate(c.finishes)], ["Requeued", count(c.requeues)], ["Timed out", count(c.timeouts)], ["Order", c.ordered ? "ordered" : "not ordered"], ["Failed messages", policyText(d.policy)],
          ["Dead letters", d.dead_letter_topic ? <><a href={to.messages(d.dead_letter_topic)}>{d.dead_letter_topic}</a>: {count(d.dead_letters)}</> : "no dead-letter topic"],
        ]} />
        <h2>Consumers</h2>
        <Table<Connection> caption="Consumers" rows={d.connections} empty={d.unreachable.length ? "No consumer is connected to the brokers that answered." : "No consumer is connected."} columns={[
          { head: "Client", cell: k => <>{k.client_id || k.hostname || k.remote_address}{k.version === "HTTP" && <small class="dim"> over HTTP</small>}</> },
          { head: "Address", cell: k => k.remote_address }, { head: "Broker", cell: k => <a href={to.broker(k.broker)}>{k.broker}</a> },
          { head: "Ready", cell: k => count(k.ready_count), number: true }, { head: "In flight", cell: k => count(k.in_flight_count), number: true },
          { head: "Oldest in flight", cell: k => !k.oldest ? "none" : <><a href={to.messages(topic, k.oldest.partition, sequenceOf(k.oldest.id))}>{topic}/{k.oldest.partition}, sequence {count(Number(sequenceOf(k.oldest.id)))}</a> since {clock(Date.now() - k.oldest.held_ns / 1e6)} ({seconds(k.oldest.held_ns / 1e9)}), attempt {count(k.oldest.attempts)}</> },
          { head: "Received", cell: k => count(k.message_count), number: true }, { head: "Finished", cell: k => count(k.finish_count), number: true }, { head: "Requeued", cell: k => count(k.requeue_count), number: true },
          { head: "Last activity", cell: k => ago(Date.parse(k.last_activity)) }, { head: "Connected", cell: k => clock(k.connect_ts * 1000) },
          { head: "User", cell: k => k.auth_identity || "none" }, { head: "User agent", cell: k => k.user_agent || unknown }, { head: "TLS", cell: k => k.tls ? "yes" : "no" },
        ]} />
        <h2>Partitions</h2>
        <Table<ChannelPartition> caption="The channel in each partition" rows={d.partitions} empty="Its partitions are unknown." keyOf={p => String(p.partition)} columns={[
          { head: "Partition", cell: p => <a href={to.partition(topic, p.partition)}>{p.partition}</a> },
          { head: "Leader", cell: p => p.leader ? <a href={to.broker(p.leader)}>{p.leader}</a> : "none" },
          { head: "Backlog", cell: p => count(p.depth), number: true }, { head: "In flight", cell: p => count(p.in_flight), number: true }, { head: "Delayed", cell: p => count(p.deferred), number: true },
          { head: "Lag", cell: p => seconds(p.lag_seconds), number: true }, { head: "Confirmed", cell: p => count(p.confirmed_sequence), number: true }, { head: "End", cell: p => count(p.end_sequence), number: true },
        ]} />
        {d.dead_letter_topic && <><h2>Dead letters</h2><div class="actions"><a class="button" href={to.messages(d.dead_letter_topic)}>View {d.dead_letter_topic}</a> <Redrive topic={topic} channel={channel} from={d.dead_letter_topic} /></div></>}
      </>;
    }}</Loaded>
    <Delayed topic={topic} channel={channel} />
    <Charts of={{ topic, channel }} pictures={[
      { title: "Messages", axis: "messages", lines: [{ name: "depth", label: "backlog" }, { name: "in_flight", label: "in flight" }, { name: "deferred", label: "delayed" }], format: brief },
      { title: "Lag (age of the oldest message)", axis: "time", lines: [{ name: "lag_seconds", label: "lag" }], format: seconds },
      { title: "Finished per second", axis: "messages/s", lines: [{ name: "finishes", label: "finished" }], format: rate },
    ]} />
  </>;
}

// sequenceOf reads the sequence in a message id: its low 42 bits.
function sequenceOf(id: string): string {
  try { return String(BigInt("0x" + id) & ((1n << 42n) - 1n)); } catch { return ""; }
}

const listed = 100;

function Delayed({ topic, channel }: { topic: string; channel: string }) {
  const of = useData<{ messages: Deferred[] | null }>(address("v1/channel/deferred", { topic, channel, limit: listed }), 10000);
  const [chosen, set] = useState<Set<string>>(new Set()), clock = useClock();
  const all = of.data?.messages ?? [], ids = all.map(m => m.id).filter(id => chosen.has(id));
  const choose = (id: string, on: boolean) => set(s => { const next = new Set(s); if (on) next.add(id); else next.delete(id); return next; });
  return <section aria-labelledby="delayed"><h2 id="delayed">Delayed messages</h2>
    {of.error instanceof Failed && of.error.status === 403 ? <p class="dim">Only administrators of the topic can see them.</p> : of.error && of.error.status === 404 ? <p class="dim">None.</p> : <Loaded of={of}>{() => <>
      <Table<Deferred> caption="Delayed messages, the earliest first" rows={all} empty="None." keyOf={m => m.id} columns={[
        { head: "Message", cell: m => <label class="check"><input type="checkbox" checked={chosen.has(m.id)} onChange={e => choose(m.id, e.currentTarget.checked)} /> <code>{m.id}</code></label> },
        { head: "Due", cell: m => clock(m.deadline / 1e6) }, { head: "Attempts", cell: m => count(m.attempts), number: true },
        { head: "Partition", cell: m => count(m.partition), number: true }, { head: "Content", cell: m => <a href={to.messages(topic, m.partition, sequenceOf(m.id))} aria-label={`Content of ${m.id}`}>view</a> },
      ]} />
      <div class="actions"><Action hide={all.length === 0} label={ids.length > 0 ? `Cancel ${plural(ids.length, "message")}` : "Cancel selected"} button="Cancel permanently" danger confirm={channel} disabled={ids.length === 0}
        title={`Cancel ${plural(ids.length, "delayed message")} of ${channel}`} text="The selected messages are finished without being delivered. This cannot be undone."
        run={async () => {
          const r = await post<{ cancelled: number }>("v1/channel/deferred/cancel", { topic, channel, id: ids });
          set(new Set());
          return `${plural(r?.cancelled ?? 0, "message was", "messages were")} cancelled.`;
        }} /></div>
      {all.length === listed && <p class="dim">Only the first {listed} are listed.</p>}
    </>}</Loaded>}
  </section>;
}
