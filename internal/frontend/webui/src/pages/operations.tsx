// Operations of the whole cluster. Those of a topic, channel, partition or message are on its page.
import { useState } from "preact/hooks";
import { address, useData } from "../api";
import { bytes, count, plural, seconds, unknown } from "../format";
import { Balance, ChannelOperations, CreateTopic, Decommission, Drain, Purge, TopicOperations, Undelete } from "../operations";
import { to } from "../route";
import { useClock } from "../settings";
import { Events, Facts, Loaded, Search, Silent, Table, Title } from "../ui";
import type { Broker, ChannelList, EventList, Overview, Trashed, Unreachable } from "../types";
import { BrokerState } from "./brokers";

const shownTrash = 100;

// Trash lists the deleted topics that can be undeleted, the latest deletion first.
function Trash() {
  const of = useData<{ topics: Trashed[] }>("v1/topic/trash", 5000), clock = useClock();
  const [held, set] = useState<Trashed>(), hold = (t: Trashed) => (on: boolean) => set(on ? t : undefined);
  return <Loaded of={of}>{d => {
    const gone = held && !d.topics.some(t => t.id === held.id) ? [held] : [];
    const all = [...d.topics, ...gone].sort((a, b) => b.deleted_at_ms - a.deleted_at_ms), several = (t: Trashed) => d.topics.filter(x => x.topic === t.topic).length > 1;
    return <>
      <Table<Trashed> caption="Deleted topics" rows={all.slice(0, shownTrash)} empty="The trash is empty. A deleted topic stays here for a grace period, and can be undeleted." keyOf={t => t.id} columns={[
        { head: "Topic", cell: t => <>{t.topic}{several(t) && <small class="dim"> id {t.id}</small>}</> },
        { head: "Size", cell: t => t.incomplete ? unknown : bytes(t.bytes), number: true },
        { head: "Messages", cell: t => t.incomplete ? unknown : count(t.messages), number: true },
        { head: "Partitions", cell: t => count(t.partitions), number: true },
        { head: "Channels", cell: t => count(t.channels), number: true },
        { head: "Deleted", cell: t => <time dateTime={new Date(t.deleted_at_ms).toISOString()}>{clock(t.deleted_at_ms)}</time> },
        { head: "By", cell: t => t.by || unknown },
        { head: "Permanently deleted in", cell: t => t.purging ? "being deleted" : seconds(t.remaining_ms / 1000), number: true },
        { head: "Operation", cell: t => t.purging && held?.id !== t.id ? "" : <span class="actions"><Undelete topic={t.topic} id={t.id} hold={hold(t)} /><Purge topic={t.topic} id={t.id} hold={hold(t)} /></span> },
      ]} />
      {all.length > 0 && <p class="dim">Size is that of one copy; each replica has one on its disk until the topic is permanently deleted.{all.length > shownTrash && ` ${plural(all.length - shownTrash, "earlier deletion")} not shown: nsqctl topic trash.`}</p>}
    </>;
  }}</Loaded>;
}

export function OperationsPage() {
  const brokers = useData<{ unreachable: Unreachable[]; brokers: Broker[] }>("v1/console/brokers", 3000);
  const overview = useData<Overview>("v1/console/overview", 5000);
  const audit = useData<EventList>(address("v1/console/events", { kind: "audit", limit: 20 }), 5000);
  const [search, set] = useState("");
  const found = useData<ChannelList>(search ? address("v1/console/channels", { search, limit: 20 }) : null, 10000);
  return <>
    <Title text="Operations" />
    <h2>Cluster</h2>
    {overview.data && <Facts facts={[["State", overview.data.summary.split("; ")[0]], ["Controller", overview.data.controller || "unknown"]]} />}
    <div class="actions"><CreateTopic done={topic => set(topic)} /><Balance /></div>
    <h2>Brokers</h2>
    <Loaded of={brokers}>{d => <>
      <Silent brokers={d.unreachable} />
      <Table<Broker> caption="Brokers and their operations" rows={d.brokers} empty="No broker is registered." keyOf={b => b.name} columns={[
        { head: "Broker", cell: b => <a href={to.broker(b.name)}>{b.name}</a> }, { head: "State", cell: b => <BrokerState b={b} /> },
        { head: "Leads", cell: b => count(b.leads), number: true }, { head: "Replicas", cell: b => count(b.replicas), number: true },
        { head: "Progress", cell: b => b.leaving || b.drain === "replicas" ? (b.replicas === 0 ? "no replicas left: it can be stopped" : `${plural(b.replicas, "replica has", "replicas have")} to move`) : "" },
        { head: "Operation", cell: b => <span class="actions"><Drain broker={b.name} drain={b.drain} /><Decommission broker={b.name} leaving={b.leaving} /></span> },
      ]} />
    </>}</Loaded>
    <h2>Topics and channels</h2>
    <p>Each topic, channel and partition has its operations on its own page. Search for it:</p>
    <div class="tools"><Search label="Topic or channel" value={search} onChange={set} /></div>
    {search && <TopicOperations search={search} />}
    {search && <Loaded of={found}>{d => <ChannelOperations channels={d.channels} note={d.matched > d.channels.length ? `${plural(d.matched - d.channels.length, "more channel")} match.` : ""} />}</Loaded>}
    <h2>Trash</h2>
    <Trash />
    <h2>The last operations</h2>
    <Loaded of={audit}>{d => <Events events={d.events} empty="No operations that you may see." />}</Loaded>
  </>;
}
