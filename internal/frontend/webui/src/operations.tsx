// The operations of the cluster: for each its button, what it does, its fields, its request and its effect in a sentence. Operations that
// destroy or move data (danger) run only after the name of their object is typed.
import { address, get, post, useData } from "./api";
import { Action, type Field, type Values } from "./action";
import { count, plural } from "./format";
import { type TopicOption, topicOptions } from "./options";
import { to } from "./route";
import type { Channel, Plan, Policy, SeekResult, Settings, Topic, TopicList } from "./types";
import { Loaded, Table } from "./ui";

// given leaves out the empty values.
function given(v: Values): Record<string, string> {
  return Object.fromEntries(Object.entries(v).filter(([, value]) => value !== ""));
}

const names = "Letters, digits, dots, hyphens and underscores; a name that ends in #ephemeral is deleted when nothing uses it.";
const froms: [string, string][] = [["latest", "latest: only messages published from now on"], ["earliest", "earliest: everything still retained"], ["other", "a time or a sequence, below"]];
const place: Field = { name: "place", label: "Time or sequence", hint: "For example 2026-11-23T03:00:00Z, or 1200. Only used if chosen above." };

function placeOf(v: Values, field: string): string {
  return v[field] === "other" ? v.place.trim() : v[field];
}

function PlanView({ plan }: { plan: Plan }) {
  const steps = plan.steps ?? [], blocked = plan.blocked ?? [];
  const moved = steps.filter(s => (s.replicas ?? []).join() !== (s.replicas_after ?? []).join()).length, led = steps.filter(s => s.leader !== s.leader_after).length;
  const changed = (plan.brokers ?? []).filter(b => b.replicas !== b.replicas_after || b.leads !== b.leads_after);
  return <>
    {steps.length === 0 && <p>The plan: there is nothing to change.</p>}
    {steps.length > 0 && <p>The plan: the replicas of {plural(moved, "partition")} move, and {plural(led, "partition gets", "partitions get")} another leader.</p>}
    {changed.length > 0 && <ul>{changed.map(b => <li key={b.broker}>{b.broker}: {count(b.replicas)} → {count(b.replicas_after)} replicas, leads {count(b.leads)} → {count(b.leads_after)}</li>)}</ul>}
    {steps.length > 0 && <details><summary>{plural(steps.length, "step")}</summary><ul class="steps">{steps.slice(0, 100).map(s => <li key={`${s.topic}/${s.partition}`}>{s.topic}/{s.partition}: {(s.replicas ?? []).join(" ")} → {(s.replicas_after ?? []).join(" ")}{s.leader !== s.leader_after ? `, leader ${s.leader || "none"} → ${s.leader_after || "none"}` : ""}</li>)}</ul>
      {steps.length > 100 && <p>… and {count(steps.length - 100)} more.</p>}</details>}
    {blocked.length > 0 && <div class="note bad">Not possible as requested:<ul>{blocked.slice(0, 20).map(b => <li key={b}>{b}</li>)}</ul>{blocked.length > 20 && `… and ${count(blocked.length - 20)} more.`}</div>}
  </>;
}

const topicFields: Field[] = [
  { name: "partitions", label: "Partitions", number: true, hint: "Empty: the broker's default." },
  { name: "replication_factor", label: "Replication factor", number: true, hint: "Empty: the broker's default." },
  { name: "min_in_sync", label: "Min in-sync replicas", number: true, hint: "Empty: the broker's default." },
  { name: "ordered", label: "Order", options: [["", "the default"], ["true", "ordered"], ["false", "not ordered"]] },
  { name: "durability", label: "Durability", options: [["", "the default"], ["sync", "sync: on disk before the answer"], ["replicated", "replicated: in memory of all in-sync replicas"]] },
];
function optionField(o: TopicOption, s?: Settings): Field {
  const now = s ? (s as unknown as Record<string, string | number>)[o.view] : undefined;
  const value = now === undefined ? "" : o.kind === "duration" ? `${Number(now) / 1000}s` : String(now);
  return { name: o.name, label: o.label, hint: o.hint, value, number: o.kind === "number", options: o.choices?.map(c => [c, c]) };
}

export function CreateTopic({ done }: { done?: (topic: string) => void }) {
  return <Action label="Create a topic" title="Create a topic" text="A topic with its partitions and replicas. If the topic exists with other settings, the request is refused and nothing changes."
    fields={[{ name: "topic", label: "Name", required: true, hint: names }, ...topicFields]}
    run={async v => { await post("topic/create", given(v)); done?.(v.topic); return `The topic ${v.topic} is created on all its replicas.`; }} />;
}

export function TopicLimits({ topic, settings }: { topic: string; settings?: Settings }) {
  return <Action label="Limits" button="Change the limits" title={`Limits of ${topic}`} text="Retention, size and throughput limits. An empty field leaves the setting unchanged."
    fields={topicOptions.map(o => optionField(o, settings))} run={async v => { await post("v1/topic/set", { topic, ...given(v) }); return `The limits of ${topic} are changed.`; }} />;
}

export function PauseTopic({ topic, paused }: { topic: string; paused: boolean }) {
  return paused
    ? <Action label="Unpause" title={`Unpause the topic ${topic}`} text="Messages published during the pause go to the channels." run={async () => { await post("topic/unpause", { topic }); return `The topic ${topic} is no longer paused.`; }} />
    : <Action label="Pause" title={`Pause the topic ${topic}`} text="New messages are stored; the channels get them when the pause ends." run={async () => { await post("topic/pause", { topic }); return `The topic ${topic} is paused.`; }} />;
}

export function EmptyTopic({ topic }: { topic: string }) {
  return <Action label="Empty" danger confirm={topic} title={`Empty the topic ${topic}`} text="Messages that no channel has received are dropped. The channels keep theirs. This cannot be undone."
    run={async () => { await post("topic/empty", { topic }); return `The topic ${topic} is empty.`; }} />;
}

export function DeleteTopic({ topic }: { topic: string }) {
  return <Action label="Delete" danger confirm={topic} title={`Delete the topic ${topic}`} text="The topic is deleted with its channels and all its messages, on every broker. It stays in the trash for a grace period (24 hours unless --delete-grace is set), during which the page Operations can undelete it. A topic whose name ends in #ephemeral is deleted permanently at once."
    run={async () => { await post("topic/delete", { topic }); return `The topic ${topic} is deleted.`; }} leave={() => { location.hash = "#/topics"; }} />;
}

// Undelete and Purge also name the topic by its id, because the trash may hold several of one name. Their row
// disappears when they succeed; hold keeps it, and the dialog with the answer, until the reader closes that.
interface InTrash { topic: string; id: string; hold: (on: boolean) => void }

async function held(hold: InTrash["hold"], request: () => Promise<unknown>) {
  hold(true);
  try {
    await request();
  } catch (e) {
    hold(false);
    throw e;
  }
}

export function Undelete({ topic, id, hold }: InTrash) {
  return <Action label="Undelete" title={`Undelete the topic ${topic}`} text="The topic is restored as it was: its messages, its channels with their positions, delayed messages, policies, pauses and limits. Refused while another topic has the name."
    run={async () => { await held(hold, () => post("v1/topic/undelete", { topic, id })); return `The topic ${topic} is restored.`; }} leave={() => hold(false)} />;
}

export function Purge({ topic, id, hold }: InTrash) {
  return <Action label="Delete now" danger confirm={topic} title={`Delete the topic ${topic} permanently`} text="The topic is deleted before its grace period ends, with its channels and all its messages. Its files are removed from the disks after each broker's --trash-grace. This cannot be undone."
    run={async () => { await held(hold, () => post("v1/topic/purge", { topic, id })); return `The topic ${topic} is being deleted permanently.`; }} leave={() => hold(false)} />;
}

export function CreateChannel({ topic }: { topic: string }) {
  return <Action label="Create a channel" title={`Create a channel of ${topic}`} text="A channel gets every message of its topic from its starting position on."
    fields={[{ name: "channel", label: "Name", required: true, hint: names }, { name: "from", label: "Start at", options: [["", "default: the first channel gets everything still retained"], ...froms] }, place,
      { name: "ordered", label: "Order", options: [["", "as the topic"], ["true", "ordered"], ["false", "not ordered"]] }]}
    run={async v => {
      await post("channel/create", given({ topic, channel: v.channel, from: placeOf(v, "from"), ordered: v.ordered }));
      return `The channel ${v.channel} is created.`;
    }} />;
}

export function Replication({ topic, settings }: { topic: string; settings?: Settings }) {
  return <Action label="Replication" button="Change the replication" danger confirm={topic} title={`Change the replication of ${topic}`} text="Additional replicas are copied in the background. If the factor falls, surplus replicas are deleted at once. Publishing requires the minimum of in-sync replicas."
    fields={[{ name: "replication_factor", label: "Replication factor", number: true, value: settings ? String(settings.replication_factor) : "" },
      { name: "min_in_sync", label: "Min in-sync replicas", number: true, value: settings ? String(settings.min_in_sync) : "" }]}
    run={async v => { await post("v1/topic/replication", { topic, ...given(v) }); return `The replication of ${topic} is changed; replicas are copied in the background.`; }} />;
}

export function Move({ topic, partition, replicas, brokers }: { topic: string; partition: number; replicas: string[]; brokers: string[] }) {
  const others = brokers.filter(b => !replicas.includes(b));
  const values = (v: Values) => ({ topic, partition, from: v.from, to: v.to });
  return <Action label="Move a replica" button="Move it" danger confirm={`${topic}/${partition}`} title={`Move a replica of ${topic}/${partition}`} disabled={others.length === 0 || replicas.length === 0}
    text="The old replica is removed once the new one is copied and in sync. Publishing and delivery continue."
    fields={[{ name: "from", label: "From the broker", options: replicas.map(b => [b, b]) }, { name: "to", label: "To the broker", options: others.map(b => [b, b]) }]}
    plan={async v => <PlanView plan={await get<Plan>("v1/topic/move", values(v))} />}
    run={async v => { await post("v1/topic/move", values(v)); return `The replica moves from ${v.from} to ${v.to}; the partition's page shows its progress.`; }} />;
}

export function Balance() {
  return <Action label="Balance" button="Carry out the plan" title="Balance the cluster" text="Replicas and leaders are spread evenly over the brokers. Publishing and delivery continue."
    plan={async () => <PlanView plan={await get<Plan>("v1/cluster/balance")} />}
    run={async () => { await post("v1/cluster/balance"); return "The cluster is being balanced; the events show each step."; }} />;
}

export function Decommission({ broker, leaving }: { broker: string; leaving: boolean }) {
  if (leaving) return <Action label="Cancel the decommission" title={`Keep the broker ${broker}`} text="The broker stays in the cluster. Replicas that have moved away already stay where they are."
    run={async () => { await post("v1/broker/decommission", { node: broker, cancel: true }); return `The broker ${broker} stays.`; }} />;
  return <Action label="Decommission" danger confirm={broker} title={`Decommission the broker ${broker}`} text="All replicas of the broker move to others, and it gets no new ones. When it has no replicas left, it can be shut down permanently."
    plan={async () => <PlanView plan={await get<Plan>("v1/broker/decommission", { node: broker })} />}
    run={async () => { await post("v1/broker/decommission", { node: broker }); return `The replicas of ${broker} move to other brokers; its page shows how many are left.`; }} />;
}

export function Drain({ broker, drain }: { broker: string; drain?: string }) {
  if (drain) return <Action label="End the drain" title={`End the drain of ${broker}`} text="The broker gets leaderships and replicas again."
    run={async () => { await post("v1/broker/drain", { node: broker, cancel: true }); return `The drain of ${broker} has ended.`; }} />;
  const values = (v: Values) => given({ node: broker, replicas: v.replicas });
  return <Action label="Drain" danger confirm={broker} title={`Drain the broker ${broker}`} text="The broker gives up its leaderships, and gets none until the drain ends, for example before a restart. If it also gives up its replicas, it is empty afterwards, and stays in the cluster."
    fields={[{ name: "replicas", label: "Gives up", options: [["", "its leaderships"], ["true", "its leaderships and its replicas"]] }]}
    plan={async v => <PlanView plan={await get<Plan>("v1/broker/drain", values(v))} />}
    run={async v => { await post("v1/broker/drain", values(v)); return `${broker} gives up its ${v.replicas ? "leaderships and replicas" : "leaderships"}; its page shows how many are left.`; }} />;
}

export function Partitions({ topic, settings, ordered }: { topic: string; settings?: Settings; ordered?: boolean }) {
  return <Action label="Partitions" button="Add partitions" title={`Partitions of ${topic}`} text="The number of partitions can only grow. Messages with the same key may go to another partition from then on."
    fields={[{ name: "partitions", label: "Partitions", number: true, required: true, value: settings ? String(settings.partitions) : "" },
      ...(ordered ? [{ name: "reorder", label: "Order across the change", options: [["", "keep: refuse if it would break"], ["true", "give it up for messages around the change"]] as [string, string][] }] : [])]}
    run={async v => { await post("v1/topic/partitions", given({ topic, ...v })); return `The topic ${topic} has ${v.partitions} partitions.`; }} />;
}

export function PauseChannel({ topic, channel, paused }: { topic: string; channel: string; paused: boolean }) {
  return paused
    ? <Action label="Unpause" title={`Unpause the channel ${channel}`} text="The channel delivers again." run={async () => { await post("channel/unpause", { topic, channel }); return `The channel ${channel} is no longer paused.`; }} />
    : <Action label="Pause" title={`Pause the channel ${channel}`} text="The channel delivers nothing until the pause ends. Its messages stay." run={async () => { await post("channel/pause", { topic, channel }); return `The channel ${channel} is paused.`; }} />;
}

export function EmptyChannel({ topic, channel }: { topic: string; channel: string }) {
  return <Action label="Empty" danger confirm={channel} title={`Empty the channel ${channel}`} text={`All messages of the channel ${channel} of ${topic} are finished without being delivered. Other channels keep theirs. This cannot be undone.`}
    run={async () => { await post("channel/empty", { topic, channel }); return `The channel ${channel} is empty.`; }} />;
}

export function DeleteChannel({ topic, channel }: { topic: string; channel: string }) {
  return <Action label="Delete" danger confirm={channel} title={`Delete the channel ${channel}`} text={`The channel ${channel} of ${topic} is deleted, and its consumers are disconnected. A consumer that reconnects creates it again.`}
    run={async () => { await post("channel/delete", { topic, channel }); return `The channel ${channel} is deleted.`; }} leave={() => { location.hash = `#/topic/${encodeURIComponent(topic)}`; }} />;
}

const shownMoves = 100;

function SeekPlan({ result: r }: { result: SeekResult }) {
  const moves = r.partitions.filter(m => m.from !== m.to || m.skips || m.repeats);
  return <>
    <p>The plan: {plural(r.skips, "message is", "messages are")} skipped, and {plural(r.repeats, "message comes", "messages come")} again.</p>
    <p class="dim">Skipped: unfinished messages that will no longer be delivered, including those in flight or delayed. Again: messages already finished or skipped, or older than the channel. Consumers continue, so the seek itself may report other numbers.</p>
    {moves.length > 0 && <details open={moves.length <= 8}><summary>{plural(moves.length, "partition")}</summary><ul class="steps">{moves.slice(0, shownMoves).map(m => <li key={m.partition}>
      Partition {m.partition}: from sequence {count(m.from)} to {count(m.to)}, {count(m.skips)} skipped, {count(m.repeats)} again</li>)}</ul>
      {moves.length > shownMoves && <p>… and {count(moves.length - shownMoves)} more.</p>}</details>}
  </>;
}

export function Seek({ topic, channel, partitions }: { topic: string; channel: string; partitions: number }) {
  const values = (v: Values) => given({ topic, channel, to: placeOf(v, "to"), partition: v.partition });
  return <Action label="Seek" danger confirm={channel} button="Seek" title={`Move the channel ${channel}`} text="The channel continues at another position: messages before it are skipped, messages after it are delivered again."
    fields={[{ name: "to", label: "Go to", options: froms }, place,
      { name: "partition", label: "Partition", options: [["", "all"], ...Array.from({ length: Math.min(partitions, 1024) }, (_, i): [string, string] => [String(i), String(i)])] }]}
    plan={async v => {
      const r = await post<SeekResult>("v1/channel/seek", { ...values(v), dry_run: true });
      return r && <SeekPlan result={r} />;
    }}
    run={async v => {
      const r = await post<SeekResult>("v1/channel/seek", values(v));
      return `The channel ${channel} has moved: ${plural(r?.skips, "message is", "messages are")} skipped, ${plural(r?.repeats, "message comes", "messages come")} again.`;
    }} />;
}

export function backoffText(p: Policy): string {
  if (!p.retry_backoff_ms) return "";
  return `${p.retry_backoff_ms}ms,${p.retry_backoff_factor}${p.retry_backoff_max_ms || p.retry_backoff_jitter ? `,${p.retry_backoff_max_ms ? p.retry_backoff_max_ms + "ms" : ""}` : ""}${p.retry_backoff_jitter ? `,${p.retry_backoff_jitter}` : ""}`;
}

export function PolicyOf({ topic, channel, policy }: { topic: string; channel: string; policy?: Policy }) {
  return <Action label="Policy" button="Set the policy" title={`Policy of ${channel} for messages that fail`} text="A message that has failed as often as allowed moves to the dead-letter topic. An empty field removes that part of the policy."
    fields={[{ name: "max_attempts", label: "Attempts", number: true, value: policy?.max_attempts ? String(policy.max_attempts) : "", hint: "Empty: unlimited." },
      { name: "dead_letter_topic", label: "Dead-letter topic", value: policy?.dead_letter_topic ?? "", hint: "Empty: none." },
      { name: "retry_backoff", label: "Delay between attempts", value: policy ? backoffText(policy) : "", hint: "Base, factor, maximum, jitter: such as 1s,2,5m,0.2. Empty: none." }]}
    run={async v => { await post("v1/channel/policy", { topic, channel, ...v }); return `The policy of ${channel} is set.`; }} />;
}

export function Order({ topic, channel, ordered }: { topic: string; channel: string; ordered: boolean }) {
  return <Action label={ordered ? "Make unordered" : "Make ordered"} title={ordered ? `Deliver ${channel} in any order` : `Deliver ${channel} in order`}
    text={ordered ? "Messages of a partition are delivered in parallel." : "Of each partition one message is delivered at a time, in the order of publication."}
    run={async () => { await post("channel/setorder", { topic, channel, order: !ordered }); return `The channel ${channel} is ${ordered ? "no longer ordered" : "ordered"}.`; }} />;
}

export function Redrive({ topic, channel, from }: { topic: string; channel: string; from: string }) {
  return <Action label="Redrive" title={`Deliver the dead letters of ${channel} again`} text={`Messages of ${channel} in ${from} are published again, only for this channel, and leave ${from}.`}
    fields={[{ name: "limit", label: "At most", number: true, value: "1000", required: true }]}
    run={async v => {
      const r = await post<{ redriven: number }>("v1/channel/redrive", { topic, channel, limit: v.limit });
      return `${plural(r?.redriven ?? 0, "message was", "messages were")} redriven.`;
    }} />;
}

export function Publish({ topic, done }: { topic: string; done?: () => void }) {
  return <Action label="Publish a test message" button="Publish" title={`Publish to ${topic}`} text="This is a real message: consumers of every channel receive it." done={done}
    fields={[{ name: "body", label: "Body", long: true, required: true, value: "test" }, { name: "key", label: "Key", hint: "Messages of one key go to one partition. Empty: any." },
      { name: "defer", label: "Delay, milliseconds", number: true }, { name: "ttl", label: "TTL, milliseconds", number: true, hint: "Empty: no limit." }]}
    run={async v => {
      const { body, ...others } = v;
      await post("pub", { topic, ...given(others) }, { body, headers: { "Content-Type": "application/octet-stream" } });
      return "The message is stored on all in-sync replicas.";
    }} />;
}

// TopicOperations lists the topics that a search finds, with their most frequent operations.
export function TopicOperations({ search }: { search: string }) {
  const of = useData<TopicList>(address("v1/console/topics", { search, limit: 20 }), 10000);
  return <Loaded of={of}>{d => <Table<Topic> caption="Topics found" rows={d.topics} empty="No topic matches." keyOf={t => t.topic} columns={[
    { head: "Topic", cell: t => <a href={to.topic(t.topic)}>{t.topic}</a> }, { head: "Backlog", cell: t => count(t.depth), number: true },
    { head: "Operations", cell: t => <span class="actions"><PauseTopic topic={t.topic} paused={t.paused} /><Publish topic={t.topic} /></span> },
  ]} />}</Loaded>;
}

export function ChannelOperations({ channels, note }: { channels: Channel[]; note: string }) {
  return <><Table<Channel> caption="Channels found" rows={channels} empty="No channel matches." keyOf={c => `${c.topic}/${c.channel}`} columns={[
    { head: "Channel", cell: c => <a href={to.channel(c.topic, c.channel)}>{c.topic}/{c.channel}</a> }, { head: "Backlog", cell: c => count(c.depth), number: true },
    { head: "Operations", cell: c => <span class="actions"><PauseChannel topic={c.topic} channel={c.channel} paused={c.paused} /></span> },
  ]} />{note && <p class="dim">{note}</p>}</>;
}
