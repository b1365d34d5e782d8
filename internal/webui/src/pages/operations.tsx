// Operations of the whole cluster. Those of a topic, channel, partition or message are on its page.
import { useState } from "preact/hooks";
import { address, useData } from "../api";
import { count, plural } from "../format";
import { Balance, ChannelOperations, CreateTopic, Decommission, Drain, TopicOperations } from "../operations";
import { to } from "../route";
import { Events, Facts, Loaded, Search, Silent, Table, Title } from "../ui";
import type { Broker, ChannelList, EventList, Overview, Unreachable } from "../types";
import { BrokerState } from "./brokers";

export function OperationsPage() {
  const brokers = useData<{ unreachable: Unreachable[]; brokers: Broker[] }>("v1/console/brokers", 3000);
  const overview = useData<Overview>("v1/console/overview", 5000);
  const audit = useData<EventList>(address("v1/console/events", { kind: "audit", limit: 20 }), 5000);
  const [search, set] = useState("");
  const found = useData<ChannelList>(search ? address("v1/console/channels", { search, limit: 20 }) : null, 10000);
  return <>
    <Title text="Operations" />
    <h2>Cluster</h2>
    {overview.data && <Facts facts={[["State", overview.data.summary], ["Controller", overview.data.controller || "unknown"]]} />}
    <div class="actions"><CreateTopic done={topic => set(topic)} /><Balance /></div>
    <h2>Brokers</h2>
    <Loaded of={brokers}>{d => <>
      <Silent brokers={d.unreachable} />
      <Table<Broker> caption="Brokers and their operations" rows={d.brokers} empty="No broker is registered." keyOf={b => b.name} columns={[
        { head: "Broker", cell: b => <a href={to.broker(b.name)}>{b.name}</a> }, { head: "State", cell: b => <BrokerState b={b} /> },
        { head: "Leads", cell: b => count(b.leads), number: true }, { head: "Replicas", cell: b => count(b.replicas), number: true },
        { head: "Progress", cell: b => b.leaving || b.drain === "replicas" ? (b.replicas === 0 ? "nothing left: it can be stopped" : `${plural(b.replicas, "replica has", "replicas have")} to move`) : "" },
        { head: "Operation", cell: b => <span class="actions"><Drain broker={b.name} drain={b.drain} /><Decommission broker={b.name} leaving={b.leaving} /></span> },
      ]} />
    </>}</Loaded>
    <h2>Topics and channels</h2>
    <p>Each topic, channel and partition has its operations on its own page. Search for it:</p>
    <div class="tools"><Search label="Topic or channel" value={search} onChange={set} /></div>
    {search && <TopicOperations search={search} />}
    {search && <Loaded of={found}>{d => <ChannelOperations channels={d.channels} note={d.matched > d.channels.length ? `${plural(d.matched - d.channels.length, "more channel")} match.` : ""} />}</Loaded>}
    <h2>The last operations</h2>
    <Loaded of={audit}>{d => <Events events={d.events} empty="Nobody has changed anything that you may see." />}</Loaded>
  </>;
}
