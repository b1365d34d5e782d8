// The first page: are messages safe, can clients publish, are consumers behind, are all brokers up, and what to do.
import { useData } from "../api";
import { Charts } from "../chart";
import { brief, bytes, count, milliseconds, plural, rate, seconds } from "../format";
import { link, place, to } from "../route";
import { Alarms, Events, Light, Loaded, Mark, Silent, Table, Tile, Title, sentence } from "../ui";
import type { Overview as Data, State } from "../types";
import { BrokerTable } from "./brokers";

// unsafe are the alarms about messages; the others are about brokers.
const unsafe = new Set(["no_leader", "below_minimum", "one_disk", "damaged"]);

function Safe({ o }: { o: Data }) {
  const worst = o.alarms.find(a => unsafe.has(a.code)) ?? o.alarms.find(a => a.code === "under_replicated"), silent = o.alarms.some(a => a.code === "metadata_silent");
  const state: State = worst?.state ?? (silent ? "degraded" : "healthy");
  return <Light state={state} question="Are messages safe?"><p>
    {!worst && !silent && "Yes. Every acknowledged message is on all of its replicas."}
    {silent && `Acknowledged messages are stored, but ${o.self} cannot tell on how many live disks, because it cannot reach etcd. Keep all disks.`}
    {worst && !silent && `${state === "unsafe" ? "Not against one more fault: " : "Yes, but one more fault may change that: "}${worst.text}.`}
  </p></Light>;
}

function Behind({ o }: { o: Data }) {
  const first = o.behind[0];
  if (!first && o.unreachable.length > 0) return <Light state="unknown" question="Are consumers behind?"><p>None that is known. The channels led by {o.unreachable.map(u => u.broker).join(", ")} are unknown.</p></Light>;
  if (!first) return <Light state="healthy" question="Are consumers behind?"><p>No: no message has waited for more than a second.</p></Light>;
  const late = (first.lag_seconds ?? 0) >= 60, why = first.paused ? "it is paused" : first.clients === 0 ? "it has no consumers" : `it has ${plural(first.clients ?? 0, "consumer")}`;
  return <Light state={late ? "degraded" : "healthy"} question="Are consumers behind?">
    <p><a href={to.channel(first.topic, first.channel)}>{first.topic}/{first.channel}</a> is {seconds(first.lag_seconds)} behind, with {plural(first.depth, "message")} in its backlog and {count(first.in_flight)} in flight: {why}.</p>
  </Light>;
}

const slow = 0.5; // s; a replica is out of sync after a second

// ownFaults are the alarms that a broker raises by its report on itself.
const ownFaults: Record<string, string> = {
  network_corrupts: "received bytes corrupted in transit", metadata_full: "has an etcd database that is nearly full",
  certificate_expires: "has a certificate that expires soon or has expired", certificate_unusable: "has a certificate whose files cannot be used", clients_refused: "refuses clients above a limit",
  auth_service_silent: "gets no usable answer from the authorization service",
};

function Which({ o }: { o: Data }) {
  const faults = o.brokers.flatMap(b => {
    const silent = o.unreachable.find(u => u.broker === b.name);
    const refuses = o.alarms.some(a => a.code === "low_space" && a.state === "unsafe");
    const hangs = o.alarms.some(a => a.code === "broker_hangs" && a.where?.includes(b.name));
    const what = hangs ? "hangs: its disk or a core loop is stuck, or its store has failed" : b.unreachable ? `is registered and does not answer ${o.self}` : !b.alive ? (b.silent ? `does not answer at ${b.rpc_address}: kill it if it still runs, then start it` : "is dead") : b.low_space ? (refuses ? "is below its disk reserve, so partitions refuse new messages" : "is below its disk reserve; other replicas accept new messages") : silent ? `does not answer (${silent.reason})` : b.leaving ? "is leaving"
      : (b.behind_seconds ?? 0) >= slow ? `is slow: leaders waited ${seconds(b.behind_seconds)} for its replicas` : "";
    const own = o.alarms.filter(a => ownFaults[a.code] && a.where?.includes(b.name));
    const all = [what, ...own.map(a => ownFaults[a.code])].filter(Boolean).join(", and ");
    return all ? [{ b, what: all, bad: hangs || !b.alive || b.low_space && refuses || own.some(a => a.state === "unsafe") }] : [];
  });
  const reported = o.reported && <p>{sentence(o.reported)}</p>;
  if (faults.length === 0 && reported) return <Light state="degraded" question="Are all brokers up?">{reported}</Light>;
  if (faults.length === 0) return <Light state="healthy" question="Are all brokers up?"><p>Yes: {o.brokers.length === 1 ? "the only broker answers" : `all ${o.brokers.length} answer`}.</p></Light>;
  return <Light state={faults.some(f => f.bad) ? "unsafe" : "degraded"} question="Are all brokers up?">
    <ul>{faults.map(f => <li key={f.b.name}><a href={to.broker(f.b.name)}>{f.b.name}</a> {f.what}.</li>)}</ul>
    {reported}
  </Light>;
}

// causes are alarms about brokers that explain partitions with faults.
const causes = new Set(["broker_unreachable", "broker_dead", "broker_hangs", "low_space", "network_corrupts"]);

function Press({ o }: { o: Data }) {
  // A broker that is dead, cut off or hangs is the reason why replicas are missing: its alarm comes first.
  const worst = o.alarms[0], ofPartition = worst && (unsafe.has(worst.code) || worst.code === "under_replicated");
  const first = ofPartition ? o.alarms.find(a => causes.has(a.code)) ?? worst : worst, behind = o.behind[0];
  if (first) {
    const where = first.where?.find(w => w !== o.self);
    return <Light state={first.state} question="What should I do?"><p>{sentence(first.do)}{where && <> See <a href={place(where)}>{where}</a>.</>}</p></Light>;
  }
  if (behind && (behind.lag_seconds ?? 0) >= 60) return <Light state="degraded" question="What should I do?">
    <p>{behind.paused ? "Unpause the channel" : behind.clients === 0 ? "Start its consumers" : "Check whether its consumers finish their messages"}: <a href={to.channel(behind.topic, behind.channel)}>{behind.topic}/{behind.channel}</a>.</p>
  </Light>;
  return <Light state="healthy" question="What should I do?"><p>Nothing.</p></Light>;
}

export function Overview() {
  const of = useData<Data>("v1/console/overview", 2000);
  return <>
    <Title text="Overview">{of.data && <p class="dim">{of.data.cluster}, as seen by {of.data.self}; the controller is {of.data.controller || "unknown"}</p>}</Title>
    <Loaded of={of}>{o => <>
      <div class="lights"><Safe o={o} /><Light state={o.publishing.state} question="Can clients publish?"><p>{sentence(o.publishing.text)}</p></Light><Behind o={o} /><Which o={o} /><Press o={o} /></div>
      <p class="summary" role="status"><Mark state={o.state} text={`${o.state[0].toUpperCase()}${o.state.slice(1)}:`} /> {o.brokers.filter(b => b.alive).length} of {plural(o.brokers.length, "broker")} alive, {plural(o.topics, "topic")}, {plural(o.partitions, "partition")}.</p>
      <Silent brokers={o.unreachable} />
      <Alarms alarms={o.alarms} of={o.state} />
      <dl class="tiles">
        <Tile name="Published" value={rate(o.puts)} note={o.put_bytes == null ? undefined : `${bytes(o.put_bytes)}/s`} />
        <Tile name="Refused" value={rate(o.refusals)} state={(o.refusals ?? 0) > 0 ? "degraded" : "healthy"} note="publishes not answered OK" />
        <Tile name="Delivered" value={rate(o.deliveries)} />
        <Tile name="Finished" value={rate(o.finishes)} />
        <Tile name="Publish p99" value={milliseconds(o.put_p99_ms?.value)} note={o.put_p99_ms?.broker} />
        <Tile name="Journal sync p99" value={milliseconds(o.sync_p99_ms?.value)} note={o.sync_p99_ms?.broker} />
        <Tile name="Backlog" value={brief(o.depth)} />
        <Tile name="In flight" value={brief(o.in_flight)} />
        <Tile name="Delayed" value={brief(o.deferred)} />
        <Tile name="Connections" value={brief(o.connections)} />
        <Tile name="Topics" value={count(o.topics)} note={`${plural(o.partitions, "partition")}, ${plural(o.channels, "channel")}`} />
        <Tile name="Under-replicated" value={count(o.under_replicated)} state={o.under_replicated > 0 ? "degraded" : "healthy"} note="partitions" />
        <Tile name="Leaderless" value={count(o.leaderless)} state={o.leaderless > 0 ? "unsafe" : "healthy"} note="partitions" />
      </dl>
      <h2>Brokers</h2>
      <BrokerTable brokers={o.brokers} />
      <h2>Largest lags</h2>
      <Table caption="The three channels whose oldest message has waited longest" rows={o.behind} empty="No message has waited for more than a second." columns={[
        { head: "Channel", cell: c => <a href={to.channel(c.topic, c.channel)}>{c.topic}/{c.channel}</a> },
        { head: "Lag", cell: c => seconds(c.lag_seconds), number: true }, { head: "Backlog", cell: c => count(c.depth), number: true }, { head: "In flight", cell: c => count(c.in_flight), number: true },
        { head: "Consumers", cell: c => count(c.clients), number: true }, { head: "State", cell: c => c.paused ? "paused" : c.clients === 0 ? "no consumers" : "delivers" },
      ]} />
      <p><a href={link(["channels"], { sort: "lag" })}>All channels by lag</a></p>
    </>}</Loaded>
    <Charts of={{}} pictures={[
      { title: "Messages per second", axis: "messages/s", lines: [{ name: "puts", label: "published" }, { name: "deliveries", label: "delivered" }, { name: "refusals", label: "refused" }], format: rate },
      { title: "Slowest broker", axis: "time", lines: [{ name: "put_p99_ms", label: "publish p99" }, { name: "sync_p99_ms", label: "journal sync p99" }], format: milliseconds },
      { title: "Backlog", axis: "messages", lines: [{ name: "depth", label: "backlog" }], format: brief },
      { title: "Lag (age of the oldest message)", axis: "time", lines: [{ name: "lag_seconds", label: "lag" }], format: seconds },
    ]} />
    {of.data && <><h2>What changed in the last hour</h2><Events events={of.data.changes} empty="Nothing." /><p><a href="#/events">All events of 24 hours</a></p></>}
  </>;
}
