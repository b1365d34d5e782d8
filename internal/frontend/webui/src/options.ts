// Generated from the table in internal/option (`make reference`).
export interface TopicOption { name: string; view: string; label: string; kind: string; hint: string; choices?: string[] }

export const topicOptions: TopicOption[] = [
  {"name":"retention_time","view":"retention_ms","label":"Retention","kind":"duration","hint":"A duration such as 24h; 0s: none."},
  {"name":"retention_bytes","view":"retention_bytes","label":"Retention size, bytes","kind":"number","hint":"0: no limit."},
  {"name":"max_bytes","view":"max_bytes","label":"Size limit, bytes","kind":"number","hint":"0: no limit."},
  {"name":"message_ttl","view":"message_ttl_ms","label":"Message TTL","kind":"duration","hint":"A duration such as 24h; 0s: no limit."},
  {"name":"max_put_rate","view":"max_put_rate","label":"Max throughput per broker, messages/s","kind":"number","hint":"0: no limit."},
  {"name":"max_put_bytes_rate","view":"max_put_bytes_rate","label":"Max throughput per broker, bytes/s","kind":"number","hint":"0: no limit."},
  {"name":"dedupe_window","view":"dedupe_window_ms","label":"Dedupe window","kind":"duration","hint":"A duration such as 24h, 1s to 1h; 0s: the default."},
  {"name":"dedupe","view":"dedupe","label":"Dedupe","kind":"choice","hint":"Id or content: recognise a message without an id that is published again by its body, key and headers.","choices":["id","content"]},
  {"name":"idle_after","view":"idle_after_ms","label":"Delete when unused for","kind":"duration","hint":"A duration such as 24h, 1m or more; 0s: never."},
  {"name":"channel_idle_after","view":"channel_idle_after_ms","label":"Delete channels when unused for","kind":"duration","hint":"A duration such as 24h, 1m or more; 0s: never."},
];
