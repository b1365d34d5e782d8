// One topic, and one partition of it.
import { useData, address } from "../api";
import { Charts } from "../chart";
import { brief, bytes, count, rate, seconds, unknown } from "../format";
import { CreateChannel, DeleteTopic, EmptyTopic, Move, Partitions, PauseTopic, Publish, Replication, TopicLimits } from "../operations";
import { to } from "../route";
import { Brokers, Crumbs, Events, Facts, Fault, Loaded, Mark, Silent, Table, Title } from "../ui";
import type { Broker, Member, PartitionDetail, TopicDetail, Unreachable } from "../types";
import { ChannelTable, TopicState } from "./topics";

const limited = (v: number, text: (v: number) => string) => v > 0 ? text(v) : "no limit";

export function TopicPage({ topic }: { topic: string }) {
  const of = useData<TopicDetail>(address("v1/console/topic", { topic }), 3000), d = of.data;
  return <>
    <Crumbs items={[["Topics", "#/topics"]]} />
    <Title text={topic} kind="Topic">{d && <TopicState t={d.topic} />}</Title>
    {d && <div class="actions">
      <a class="button" href={to.messages(topic)}>Messages</a>
      <Publish topic={topic} /><CreateChannel topic={topic} /><PauseTopic topic={topic} paused={d.topic.paused} /><TopicLimits topic={topic} settings={d.settings} />
      <Partitions topic={topic} settings={d.settings} ordered={d.settings?.ordered} /><Replication topic={topic} settings={d.settings} /><EmptyTopic topic={topic} /><DeleteTopic topic={topic} />
    </div>}
    <Loaded of={of}>{d => {
      const t = d.topic, s = d.settings;
      return <>
        <Silent brokers={d.unreachable} />
        {t.paused && <p class="note warn">The topic is paused: new messages are stored, but its channels do not get them.</p>}
        <Facts facts={[
          ["Published", rate(t.puts)], ["Throughput", t.put_bytes == null ? unknown : `${bytes(t.put_bytes)}/s`], ["Size of each replica", bytes(t.kept_bytes)], ["Total messages", count(t.messages)], ["Backlog", count(t.depth)], ["Lag", seconds(t.lag_seconds)],
          ["Replication factor", count(t.replication_factor)], ["Min in-sync replicas", s ? count(s.min_in_sync) : unknown],
          ["Order", s ? (s.ordered ? "ordered" : "not ordered") : unknown], ["Durability", s ? s.durability || "the broker's default" : unknown],
          ["Retention", s ? (s.retention_ms > 0 ? seconds(s.retention_ms / 1000) : "none") : unknown], ["Retention size", s ? limited(s.retention_bytes, bytes) : unknown],
          ["Size limit", s ? limited(s.max_bytes, bytes) : unknown], ["Message TTL", s ? limited(s.message_ttl_ms ?? 0, ms => seconds(ms / 1000)) : unknown],
        ]} />
        <h2>Channels</h2>
        <ChannelTable channels={d.channels} />
        <h2>Partitions</h2>
        <Table caption="Partitions" rows={d.partitions} empty="The topic has no partitions." keyOf={p => String(p.partition)} columns={[
          { head: "Partition", cell: p => <a href={to.partition(topic, p.partition)}>{p.partition}</a> },
          { head: "State", cell: p => <Fault code={p.fault} /> },
          { head: "Leader", cell: p => p.leader ? <a href={to.broker(p.leader)}>{p.leader}</a> : "none" },
          { head: "Replicas", cell: p => <Brokers names={p.replicas} /> },
          { head: "In sync", cell: p => <Brokers names={p.isr} /> },
          { head: "Moves to", cell: p => p.target?.length ? <Brokers names={p.target} /> : "" },
          { head: "Epoch", cell: p => count(p.epoch), number: true },
          { head: "Committed", cell: p => count(p.committed_sequence), number: true },
        ]} />
      </>;
    }}</Loaded>
    <Charts of={{ topic }} pictures={[
      { title: "Messages published per second", axis: "messages/s", lines: [{ name: "puts", label: "published" }], format: rate },
      { title: "Throughput", axis: "bytes/s", lines: [{ name: "put_bytes", label: "published" }], format: bytes },
      { title: "Size of each replica", axis: "bytes", lines: [{ name: "kept_bytes", label: "size" }], format: bytes },
      { title: "Backlog", axis: "messages", lines: [{ name: "depth", label: "backlog" }], format: brief },
      { title: "Lag (age of the oldest message)", axis: "time", lines: [{ name: "lag_seconds", label: "lag" }], format: seconds },
    ]} />
  </>;
}

export function PartitionPage({ topic, partition }: { topic: string; partition: number }) {
  const of = useData<PartitionDetail>(address("v1/console/partition", { topic, partition }), 3000);
  const brokers = useData<{ unreachable: Unreachable[]; brokers: Broker[] }>("v1/console/brokers", 30000);
  const alive = (brokers.data?.brokers ?? []).filter(b => b.alive && !b.leaving).map(b => b.name);
  return <>
    <Crumbs items={[["Topics", "#/topics"], [topic, to.topic(topic)]]} />
    <Title text={`${topic}/${partition}`} kind="Partition">{of.data && <Fault code={of.data.partition.fault} />}</Title>
    {of.data && <div class="actions"><a class="button" href={to.messages(topic, partition)}>Messages</a>
      <Move topic={topic} partition={partition} replicas={of.data.partition.replicas} brokers={alive} /></div>}
    <Loaded of={of}>{d => {
      const p = d.partition;
      return <>
        <Silent brokers={d.unreachable} />
        {p.target && p.target.length > 0 && <p class="note warn" role="status">Its replicas are being moved: {p.replicas.join(" ")} → {p.target.join(" ")}.</p>}
        {p.damaged && p.damaged.length > 0 && <div class="note bad">A damaged place that no replica could repair yet:<ul>{p.damaged.map(x => <li key={`${x.node} ${x.from_offset}`}>
          on <a href={to.broker(x.node)}>{x.node}</a>: sequences {count(x.first_sequence)} to {count(x.end_sequence)}, offsets {count(x.from_offset)} to {count(x.to_offset)}</li>)}</ul>
          Channels stop before it. Keep the disks, and start the other replicas. If the bytes are lost, seek the channel past these sequences.</div>}
        <Facts facts={[["Leader", p.leader ? <a href={to.broker(p.leader)}>{p.leader}</a> : "none"], ["Epoch", count(p.epoch)], ["In sync", `${p.isr.length} of ${p.replicas.length}`],
          ["Min in-sync replicas", count(p.min_in_sync)], ["Committed sequence", count(p.committed_sequence)], ["End of the log", p.end_offset == null ? unknown : `offset ${count(p.end_offset)}`]]} />
        <h2>Replicas</h2>
        <Table<Member> caption="Replicas" rows={d.members} empty="No replica is known." keyOf={m => m.broker} columns={[
          { head: "Broker", cell: m => <a href={to.broker(m.broker)}>{m.broker}</a> },
          { head: "State", cell: m => !m.alive ? <Mark state="unsafe" text="dead" /> : m.in_sync ? <Mark state="healthy" text="in sync" /> : <Mark state="degraded" text="behind" /> },
          { head: "Role", cell: m => m.role || unknown },
          { head: "Lag", cell: m => bytes(m.lag_bytes), number: true },
          { head: "Lag in time", cell: m => seconds(m.lag_seconds), number: true },
          { head: "End, offset", cell: m => count(m.end_offset), number: true },
          { head: "Committed, offset", cell: m => count(m.committed_offset), number: true },
          { head: "End, sequence", cell: m => count(m.end_sequence), number: true },
        ]} />
        <h2>Elections and in-sync set</h2>
        <Events events={d.events} empty="Nothing has changed in the last 24 hours." />
      </>;
    }}</Loaded>
  </>;
}
