// The lists of topics and of channels: searched, sorted and paged by the broker.
import { useData, address } from "../api";
import { bytes, count, rate, seconds } from "../format";
import { CreateTopic } from "../operations";
import { replaceQuery, to, type Route } from "../route";
import { Fault, Loaded, Mark, Pager, Search, Silent, Table, Title } from "../ui";
import type { Channel, ChannelList, Topic, TopicList } from "../types";

const limit = 50;

function listOf(route: Route) {
  const q = route.query, sort = q.get("sort") ?? "name", order = q.get("order") ?? (sort === "name" ? "asc" : "desc");
  return { search: q.get("search") ?? "", sort, order, offset: Math.max(0, Number(q.get("offset")) || 0), limit };
}

export function TopicState({ t }: { t: Topic }) {
  if (t.fault) return <Fault code={t.fault} count={t.faulty} />;
  if (t.paused) return <Mark state="degraded" text="paused" />;
  return <Mark state="healthy" />;
}

export function TopicsPage({ route }: { route: Route }) {
  const list = listOf(route), of = useData<TopicList>(address("v1/console/topics", { ...list }), 5000);
  const onSort = (sort: string, order: string) => replaceQuery(route, { sort, order, offset: undefined });
  return <>
    <Title text="Topics"><div class="actions"><CreateTopic /></div></Title>
    <div class="tools"><Search label="Search" value={list.search} onChange={search => replaceQuery(route, { search, offset: undefined })} /></div>
    <Loaded of={of}>{d => <>
      <Silent brokers={d.unreachable} />
      <p class="dim" role="status">{list.search ? `${count(d.matched)} of ${count(d.total)} topics match.` : `${count(d.total)} topics.`}</p>
      <Table<Topic> caption="Topics" rows={d.topics} empty={list.search ? "No topic matches." : "There are no topics yet. Publishing a message creates one."} sort={list.sort} order={list.order} onSort={onSort} keyOf={t => t.topic} columns={[
        { head: "Topic", cell: t => <a href={to.topic(t.topic)}>{t.topic}</a>, sort: "name" },
        { head: "State", cell: t => <TopicState t={t} /> },
        { head: "Partitions", cell: t => count(t.partitions), number: true },
        { head: "Channels", cell: t => count(t.channels), number: true },
        { head: "Backlog", cell: t => count(t.depth), number: true, sort: "depth" },
        { head: "Lag", cell: t => seconds(t.lag_seconds), number: true, sort: "lag" },
        { head: "Published", cell: t => rate(t.puts), number: true, sort: "rate" },
        { head: "Bytes", cell: t => t.put_bytes == null ? "unknown" : `${bytes(t.put_bytes)}/s`, number: true },
        { head: "Size", cell: t => bytes(t.kept_bytes), number: true, sort: "disk" },
        { head: "Messages", cell: t => count(t.messages), number: true },
      ]} />
      <Pager offset={list.offset} limit={limit} matched={d.matched} onMove={offset => replaceQuery(route, { offset: offset || undefined })} />
    </>}</Loaded>
  </>;
}

export function ChannelTable({ channels, withTopic, ...sorting }: { channels: Channel[]; withTopic?: boolean; sort?: string; order?: string; onSort?: (s: string, o: string) => void }) {
  return <Table<Channel> caption="Channels" rows={channels} empty="There are no channels." keyOf={c => `${c.topic}/${c.channel}`} {...sorting} columns={[
    { head: "Channel", cell: c => <a href={to.channel(c.topic, c.channel)}>{withTopic ? `${c.topic}/${c.channel}` : c.channel}</a>, sort: "name" },
    { head: "State", cell: c => c.paused ? <Mark state="degraded" text="paused" /> : c.clients == null ? <Mark state="unknown" /> : c.clients === 0 ? <Mark state={(c.depth ?? 0) > 0 ? "degraded" : "unknown"} text="no consumers" /> : <Mark state="healthy" text="delivers" /> },
    { head: "Backlog", cell: c => count(c.depth), number: true, sort: "depth" },
    { head: "In flight", cell: c => count(c.in_flight), number: true },
    { head: "Delayed", cell: c => count(c.deferred), number: true },
    { head: "Lag", cell: c => seconds(c.lag_seconds), number: true, sort: "lag" },
    { head: "Finished", cell: c => rate(c.finishes), number: true, sort: "rate" },
    { head: "Consumers", cell: c => count(c.clients), number: true },
    { head: "Requeued", cell: c => count(c.requeues), number: true },
    { head: "Timed out", cell: c => count(c.timeouts), number: true },
  ]} />;
}

export function ChannelsPage({ route }: { route: Route }) {
  const list = listOf(route), of = useData<ChannelList>(address("v1/console/channels", { ...list }), 5000);
  return <>
    <Title text="Channels" />
    <div class="tools"><Search label="Search" value={list.search} onChange={search => replaceQuery(route, { search, offset: undefined })} /></div>
    <Loaded of={of}>{d => <>
      <Silent brokers={d.unreachable} />
      <p class="dim" role="status">{list.search ? `${count(d.matched)} of ${count(d.total)} channels match.` : `${count(d.total)} channels.`}</p>
      <ChannelTable channels={d.channels} withTopic sort={list.sort} order={list.order} onSort={(sort, order) => replaceQuery(route, { sort, order, offset: undefined })} />
      <Pager offset={list.offset} limit={limit} matched={d.matched} onMove={offset => replaceQuery(route, { offset: offset || undefined })} />
    </>}</Loaded>
  </>;
}
