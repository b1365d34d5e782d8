// Addresses of pages behind the "#", such as #/topic/orders/channel/billing?tab=delayed.
import { useEffect, useState } from "preact/hooks";

export interface Route { path: string[]; query: URLSearchParams }

function parse(): Route {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(part => { try { return decodeURIComponent(part); } catch { return part; } }), query: new URLSearchParams(query) };
}

export function useRoute(): Route {
  const [route, set] = useState(parse);
  useEffect(() => {
    const changed = () => set(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export function link(path: string[], query: Record<string, string | number | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") q.set(name, String(value));
  const text = q.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? "?" + text : ""}`;
}

export const to = {
  topic: (t: string) => link(["topic", t]),
  channel: (t: string, c: string) => link(["topic", t, "channel", c]),
  partition: (t: string, p: number) => link(["topic", t, "partition", String(p)]),
  messages: (t: string, partition = 0, from = "") => link(["topic", t, "messages"], { partition, from }),
  broker: (b: string) => link(["broker", b]),
};

// place is the page of "orders/3" or of a broker, as alarms name them.
export function place(where: string): string {
  const i = where.lastIndexOf("/");
  return i < 0 ? to.broker(where.split(":")[0]) : to.partition(where.slice(0, i), Number(where.slice(i + 1)));
}

// replace changes the query of this page without an entry in the history.
export function replaceQuery(route: Route, change: Record<string, string | number | undefined>) {
  const query = Object.fromEntries(route.query);
  location.replace(link(route.path, { ...query, ...change }));
}
