// The brokers, and one of them.
import { useData, address } from "../api";
import { Charts } from "../chart";
import { brief, bytes, count, milliseconds, plural, rate, unknown } from "../format";
import { to } from "../route";
import { useClock } from "../settings";
import { Balance, Decommission, Drain } from "../operations";
import { Crumbs, Events, Facts, Loaded, Mark, Silent, Table, Title, sentence } from "../ui";
import type { Broker as Row, BrokerDetail, Place, Unreachable } from "../types";

export function BrokerState({ b }: { b: Row }) {
  if (b.hangs) return <Mark state="unsafe" text="hangs" />;
  if (b.unreachable) return <Mark state="unsafe" text="unreachable" />;
  if (!b.alive) return <Mark state="unsafe" text={b.silent ? "no answer" : "dead"} />;
  if (b.low_space) return <Mark state="degraded" text="disk full" />;
  if (!b.answered) return <Mark state="degraded" text="no answer" />;
  if (b.leaving) return <Mark state="degraded" text="leaving" />;
  if (b.drain) return <Mark state="degraded" text={`drained of ${b.drain}`} />;
  return <Mark state="healthy" text="alive" />;
}

// refusedText lists why puts were not answered OK since the broker started, the most frequent answer first.
function refusedText(b: Row): string {
  if (!b.refused) return unknown;
  const all = Object.entries(b.refused).sort((x, y) => y[1] - x[1]);
  return all.length === 0 ? "none since it started" : `since it started: ${all.map(([why, n]) => `${count(n)} ${why.replaceAll("_", " ")}`).join(", ")}`;
}

export function BrokerTable({ brokers }: { brokers: Row[] }) {
  return <Table caption="Brokers" rows={brokers} empty="No broker is registered." keyOf={b => b.name} columns={[
    { head: "Broker", cell: b => <><a href={to.broker(b.name)}>{b.name}</a>{(b.self || b.controller) && <small class="dim role">{[b.self && "serves this page", b.controller && "controller"].filter(Boolean).join(", ")}</small>}</> },
    { head: "State", cell: b => <BrokerState b={b} /> },
    { head: "Leads", cell: b => count(b.leads), number: true },
    { head: "Replicas", cell: b => count(b.replicas), number: true },
    { head: "Published", cell: b => rate(b.puts), number: true },
    { head: "Refused", cell: b => rate(b.refusals), number: true },
    { head: "Publish p99", cell: b => milliseconds(b.put_p99_ms), number: true },
    { head: "Sync p99", cell: b => milliseconds(b.sync_p99_ms), number: true },
    { head: "Replica lag", cell: b => b.behind_seconds == null ? unknown : milliseconds(b.behind_seconds * 1000), number: true },
    { head: "Connections", cell: b => count(b.connections), number: true },
    { head: "Disk used", cell: b => bytes(b.disk_data_bytes), number: true },
    { head: "Disk free", cell: b => bytes(b.disk_free_bytes), number: true },
    { head: "etcd", cell: b => b.etcd ?? unknown },
  ]} />;
}

export function BrokersPage() {
  const of = useData<{ unreachable: Unreachable[]; brokers: Row[] }>("v1/console/brokers", 5000);
  return <>
    <Title text="Brokers"><div class="actions"><Balance /></div></Title>
    <Loaded of={of}>{d => <><Silent brokers={d.unreachable} /><BrokerTable brokers={d.brokers} /></>}</Loaded>
  </>;
}

function Places({ title, places, empty }: { title: string; places: Place[]; empty: string }) {
  return <><h2>{title}</h2>{places.length === 0 ? <p class="dim">{empty}</p>
    : <p class="places">{places.slice(0, 200).map(p => <a key={`${p.topic}/${p.partition}`} href={to.partition(p.topic, p.partition)}>{p.topic}/{p.partition}</a>)}{places.length > 200 && <span> and {count(places.length - 200)} more</span>}</p>}</>;
}

// Stop says whether the broker may be stopped, or that it is not running.
function Stop({ d }: { d: BrokerDetail }) {
  const b = d.broker;
  if (b.unreachable) return <p class="note bad">It is registered, but does not answer the broker that serves this page.</p>;
  if (!b.alive && b.leaving && b.replicas === 0) return <p class="note good">It is not running, and has no replicas left.</p>;
  if (!b.alive && b.silent) return <p class="note bad">It does not answer at {b.rpc_address}, and does not refuse connections either: the process hangs, or its host is unreachable. If the process still runs, kill it; then start it.</p>;
  if (!b.alive) return <p class="note bad">It is dead: start it; if it runs, its log has the reason.{b.replicas > 0 && ` Until then ${plural(b.replicas, "partition lacks", "partitions lack")} a replica.`}</p>;
  if (d.safe_to_stop) return <p class="note good">Safe to stop: every partition continues without it.</p>;
  return <p class="note bad">Do not stop it now: {d.reasons.slice(0, 5).map(sentence).join(" ")}{d.reasons.length > 5 && ` And ${d.reasons.length - 5} more reasons.`}</p>;
}

export function BrokerPage({ name }: { name: string }) {
  const of = useData<BrokerDetail>(address("v1/console/broker", { broker: name }), 3000), clock = useClock();
  return <>
    <Crumbs items={[["Brokers", "#/brokers"]]} />
    <Title text={name} kind="Broker">{of.data && <div class="actions"><BrokerState b={of.data.broker} /><Drain broker={name} drain={of.data.broker.drain} /><Decommission broker={name} leaving={of.data.broker.leaving} /></div>}</Title>
    <Loaded of={of}>{d => {
      const b = d.broker;
      return <>
        <Silent brokers={d.unreachable.filter(u => u.broker === name)} />
        {b.leaving && <div class="note warn" role="status">The broker is leaving: {b.replicas === 0 ? "it has no replicas left and can be shut down permanently." : `${plural(b.replicas, "replica has", "replicas have")} still to move.`}</div>}
        {b.drain && <div class="note warn" role="status">The broker is being drained of its {b.drain === "replicas" ? "leaderships and replicas" : "leaderships"}: it still leads {plural(b.leads, "partition")}{b.drain === "replicas" && ` and has ${plural(b.replicas, "replica")}`}.</div>}
        <Stop d={d} />
        <Facts facts={[
          ["Leads", plural(b.leads, "partition")], ["Replicas", count(b.replicas)], ["Published", rate(b.puts)], ["Throughput", b.put_bytes == null ? unknown : `${bytes(b.put_bytes)}/s`],
          ["Delivered", rate(b.deliveries)], ["Finished", rate(b.finishes)], ["Publishes not answered OK", refusedText(b)], ["Publish p99", milliseconds(b.put_p99_ms)], ["Journal sync p99", milliseconds(b.sync_p99_ms)],
          ["Replica lag", b.behind_seconds == null ? unknown : milliseconds(b.behind_seconds * 1000)], ["Connections", count(b.connections)], ["Consumers", count(b.consumers)], ["Producers", count(b.producers)],
          ["Disk used", bytes(b.disk_data_bytes)], ["Disk free", bytes(b.disk_free_bytes)], ["etcd", b.etcd ?? unknown],
          ["Started", clock(b.started_ms)], ["TCP", b.tcp_address], ["HTTP", b.http_address], ["HTTPS", b.https_address || "none"], ["RPC", b.rpc_address || unknown], ["Zone", b.zone || "none"], ["Version", b.lockstep_version || unknown], ["Feature level", count(b.feature_level)],
        ]} />
        <Places title="Leads" places={d.leads} empty="It leads no partitions." />
        <Places title="Follows" places={d.follows} empty="It follows no partitions." />
        <h2>Events</h2>
        <Events events={d.events} empty="No events." />
      </>;
    }}</Loaded>
    <Charts of={{ broker: name }} pictures={[
      { title: "Messages per second", axis: "messages/s", lines: [{ name: "puts", label: "published" }, { name: "deliveries", label: "delivered" }], format: rate },
      { title: "Publishes not answered OK, per second", axis: "publishes/s", lines: [{ name: "refusals", label: "refused or in doubt" }], format: rate },
      { title: "Latency", axis: "time", lines: [{ name: "put_p99_ms", label: "publish p99" }, { name: "sync_p99_ms", label: "journal sync p99" }], format: milliseconds },
      { title: "Connections", axis: "connections", lines: [{ name: "connections", label: "open" }], format: brief },
      { title: "Disk", axis: "bytes", lines: [{ name: "disk_free_bytes", label: "free" }, { name: "disk_data_bytes", label: "used by the broker" }], format: bytes },
    ]} />
  </>;
}
