import type { TargetStatus, Upstream } from '../api/upstreams';
import { plural } from './format';

// statusOf returns the state of a target at each of its addresses on each node.
export const statusOf = (u: Pick<Upstream, 'status'>, url: string): TargetStatus[] => (u.status ?? []).filter((s) => s.target === url);

// removedTargets returns the URLs of targets that the upstream does not have any more, where requests are in flight.
export const removedTargets = (u: Pick<Upstream, 'status' | 'targets'>): string[] => [
  ...new Set((u.status ?? []).map((s) => s.target).filter((url) => !u.targets.some((t) => t.url === url))),
];

// inFlight returns the requests in flight.
export const inFlight = (list: TargetStatus[]): number => list.reduce((sum, s) => sum + s.in_flight, 0);

// isOut reports whether a target gets no requests while others do, although it does not drain.
export const isOut = (s: TargetStatus): boolean => s.state === 'unhealthy' || s.state === 'ejected';

const words = { healthy: 'Healthy', unhealthy: 'Unhealthy', ejected: 'Ejected', warming: 'Warming up' };

// stateWords says in which state a target is, and why.
export const stateWords = (s: TargetStatus): string => words[s.state] + (s.reason === null ? '' : `: ${s.reason}`);

// inFlightWords says how many requests are in flight.
export const inFlightWords = (n: number): string => (n === 0 ? 'nothing in flight' : `${plural(n, 'request')} in flight`);

// worst returns the state that says most of a target: of the node on which it is out, or else of one on which it is not healthy.
export const worst = (list: TargetStatus[]): TargetStatus | undefined =>
  list.find(isOut) ?? list.find((s) => s.state !== 'healthy' || s.degraded) ?? list[0];
