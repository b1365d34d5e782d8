// The shapes of the answers of /v1/console/. A missing or null value is unknown, never 0.

export type State = "healthy" | "degraded" | "unsafe";
export type Maybe<T> = T | null | undefined;

export interface Unreachable { broker: string; reason: string }

export interface Alarm {
  state: State; code: string; text: string; where?: string[]; where_count?: number; do: string; since_ms?: Maybe<number>;
}

export interface Broker {
  name: string; alive: boolean; self: boolean; controller: boolean; leaving: boolean; low_space: boolean; hangs?: boolean; unreachable?: boolean; silent?: boolean;
  zone: string; version: string; lockstep_version?: string; feature_level: number; tcp_address: string; http_address: string; https_address?: string; rpc_address?: string;
  leads: number; replicas: number; answered: boolean; drain?: string;
  started_ms?: Maybe<number>; puts?: Maybe<number>; put_bytes?: Maybe<number>; deliveries?: Maybe<number>; finishes?: Maybe<number>;
  put_p99_ms?: Maybe<number>; sync_p99_ms?: Maybe<number>; connections?: Maybe<number>; consumers?: Maybe<number>; producers?: Maybe<number>;
  disk_free_bytes?: Maybe<number>; disk_data_bytes?: Maybe<number>; etcd?: Maybe<string>;
  behind_seconds?: Maybe<number>; refusals?: Maybe<number>; refused?: Maybe<Record<string, number>>;
}

export interface Channel {
  topic: string; channel: string; depth: Maybe<number>; in_flight: Maybe<number>; deferred: Maybe<number>; lag_seconds: Maybe<number>;
  clients: Maybe<number>; paused: boolean; ordered: boolean; finishes: Maybe<number>; requeues: Maybe<number>; timeouts: Maybe<number>;
}

export interface Topic {
  topic: string; partitions: number; replication_factor: number; under_replicated: number; leaderless: number; fault?: string; faulty?: number; channels: number; paused: boolean;
  messages: Maybe<number>; depth: Maybe<number>; lag_seconds: Maybe<number>; puts: Maybe<number>; put_bytes: Maybe<number>; kept_bytes?: Maybe<number>;
}

// Damage is a damaged place on the disk of a broker, from the first sequence to before the last.
export interface Damage { node: string; from_offset: number; to_offset: number; first_sequence: number; end_sequence: number }

export interface Partition {
  partition: number; leader: string; epoch: number; replicas: string[]; isr: string[]; target?: string[]; min_in_sync: number;
  committed_sequence: Maybe<number>; end_offset: Maybe<number>; damaged?: Damage[]; fault: string;
}

export interface Event {
  time_ms: number; kind: string; text: string; state: State; brokers?: string[]; reported_by?: string[]; topic?: string; partition?: number;
  epoch?: number; in_sync?: string[]; where?: string[]; count?: number; code?: string; do?: string; identity?: string; action?: string; remote?: string; result?: string;
}

export interface Worst { broker: string; value: number }

export interface Overview {
  cluster: string; self: string; controller: string; time_ms: number; state: State; summary: string; cause: string; reported?: string; publishing: { state: State; text: string }; alarms: Alarm[];
  unreachable: Unreachable[]; brokers: Broker[]; topics: number; channels: number; partitions: number;
  under_replicated: number; leaderless: number; below_minimum: number;
  puts: Maybe<number>; put_bytes: Maybe<number>; deliveries: Maybe<number>; finishes: Maybe<number>;
  refusals?: Maybe<number>; put_p99_ms: Maybe<Worst>; sync_p99_ms: Maybe<Worst>; depth: Maybe<number>; in_flight: Maybe<number>; deferred: Maybe<number>; connections: Maybe<number>;
  behind: Channel[]; changes: Event[];
}

export interface TopicList { total: number; matched: number; offset: number; unreachable: Unreachable[]; topics: Topic[] }
export interface ChannelList { total: number; matched: number; offset: number; unreachable: Unreachable[]; channels: Channel[] }

export interface Settings {
  topic: string; partitions: number; replication_factor: number; min_in_sync: number; durability?: string; ordered: boolean;
  retention_ms: number; retention_bytes: number; max_bytes: number; message_ttl_ms: number; max_put_rate: number; max_put_bytes_rate: number; idle_after_ms: number; channel_idle_after_ms?: number;
}

export interface TopicDetail { topic: Topic; settings?: Settings; unreachable: Unreachable[]; channels: Channel[]; partitions: Partition[] }

export interface Policy {
  max_attempts: number; dead_letter_topic: string; retry_backoff_ms: number; retry_backoff_factor: number; retry_backoff_max_ms: number; retry_backoff_jitter: number;
}

export interface ChannelPartition {
  partition: number; leader: string; depth: Maybe<number>; in_flight: Maybe<number>; deferred: Maybe<number>; lag_seconds: Maybe<number>;
  confirmed_sequence: Maybe<number>; end_sequence: Maybe<number>;
}

export interface Connection {
  broker: string; remote_address: string; client_id: string; hostname: string; user_agent: string; auth_identity?: string; ready_count: number; in_flight_count: number;
  message_count: number; finish_count: number; requeue_count: number; connect_ts: number; last_activity: string; tls: boolean; version: string;
  oldest: { id: string; partition: number; attempts: number; held_ns: number } | null;
}

export interface ChannelDetail {
  channel: Channel; policy?: Policy; unreachable: Unreachable[]; dead_letter_topic: string; dead_letters: Maybe<number>;
  oldest: Maybe<{ partition: number; sequence: number; time_ms: number; lag_seconds: number }>;
  partitions: ChannelPartition[]; connections: Connection[];
}

export interface Place { topic: string; partition: number }

export interface BrokerDetail {
  broker: Broker; unreachable: Unreachable[]; safe_to_stop: boolean; reasons: string[]; leads: Place[]; follows: Place[]; events: Event[];
}

export interface Member {
  broker: string; role: string; in_sync: boolean; alive: boolean; committed_offset: Maybe<number>; end_offset: Maybe<number>; end_sequence: Maybe<number>;
  lag_bytes: Maybe<number>; lag_seconds: Maybe<number>;
}

export interface PartitionDetail { partition: Partition; topic: string; unreachable: Unreachable[]; members: Member[]; events: Event[] }

// Trashed is a deleted topic that can be undeleted. incomplete: messages and bytes do not include partitions whose leaders did not answer.
export interface Trashed {
  topic: string; id: string; deleted_at_ms: number; by?: string; partitions: number; channels: number; messages: number; bytes: number; incomplete?: boolean;
  remaining_ms: number; until_ms: number; purging?: boolean;
}

export interface EventList { unreachable: Unreachable[]; complete: boolean; events: Event[] }

export interface Series {
  step_seconds: number; from_ms: number; to_ms: number; unreachable: Unreachable[]; kept: boolean; series: Record<string, Maybe<number>[]>;
}

export interface PeekedMessage {
  id: string; partition: number; sequence: number; timestamp: number; deliver_at?: number; header?: unknown; body?: string; body_base64?: string;
}
export interface Peeked { start: number; end: number; next: number; messages: PeekedMessage[] }

export interface Deferred { id: string; partition: number; deadline: number; attempts: number }

export interface Step { topic: string; partition: number; replicas: Maybe<string[]>; replicas_after: Maybe<string[]>; leader: string; leader_after: string }
export interface Load { broker: string; replicas: number; replicas_after: number; leads: number; leads_after: number }
export interface Plan { steps: Maybe<Step[]>; brokers: Maybe<Load[]>; blocked: Maybe<string[]> }

// SeekResult counts messages. null: unknown.
export interface SeekResult {
  dry_run: boolean; skips: Maybe<number>; repeats: Maybe<number>;
  partitions: { partition: number; from: Maybe<number>; to: Maybe<number>; skips: Maybe<number>; repeats: Maybe<number>; stays?: boolean }[];
}
