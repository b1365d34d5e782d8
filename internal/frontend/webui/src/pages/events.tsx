// Events of all brokers in the last 24 hours: elections, in-sync sets, rollbacks, alarms, audit.
import { useData, address } from "../api";
import { count } from "../format";
import { replaceQuery, type Route } from "../route";
import { Events, Loaded, Search, Select, Silent, Title } from "../ui";
import type { EventList } from "../types";

const kinds: [string, string][] = [
  ["", "all"], ["alarm,alarm_ended", "alarms"], ["election", "elections"], ["isr", "in-sync sets"], ["rollback,truncation", "rollbacks and truncations"],
  ["broker_up,broker_down,registration", "brokers"], ["topic", "topics"], ["audit", "audit: who did what"],
];
const spans: [string, string][] = [["1", "the last hour"], ["6", "6 hours"], ["24", "24 hours"]];

export function EventsPage({ route }: { route: Route }) {
  const q = route.query, kind = q.get("kind") ?? "", topic = q.get("topic") ?? "", broker = q.get("broker") ?? "", hours = q.get("hours") ?? "24";
  const minute = Math.floor(Date.now() / 60000); // the address stays the same for a minute
  const of = useData<EventList>(address("v1/console/events", {
    since_ms: (minute - Number(hours) * 60) * 60000, kind: kind || undefined, topic: topic || undefined, broker: broker || undefined, limit: 500,
  }), 5000);
  const set = (change: Record<string, string>) => replaceQuery(route, Object.fromEntries(Object.entries(change).map(([k, v]) => [k, v || undefined])));
  return <>
    <Title text="Events" />
    <div class="tools">
      <Select label="Kind" value={kind} options={kinds} onChange={kind => set({ kind })} />
      <Select label="Since" value={hours} options={spans} onChange={hours => set({ hours })} />
      <Search label="Topic" value={topic} onChange={topic => set({ topic })} />
      <Search label="Broker" value={broker} onChange={broker => set({ broker })} />
    </div>
    <Loaded of={of}>{d => <>
      <Silent brokers={d.unreachable} />
      <p class="dim" role="status">{count(d.events.length)} events{d.complete ? "." : "; older ones are not shown."}</p>
      <Events events={d.events} empty="No events." />
    </>}</Loaded>
  </>;
}
