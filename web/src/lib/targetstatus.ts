import type { TargetStatus, Upstream } from '../api/upstreams';
import { count, plural } from './format';

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

// isEjected reports whether a target is ejected on some node.
export const isEjected = (list: TargetStatus[]): boolean => list.some((s) => s.state === 'ejected');

const words = { healthy: 'Healthy', unhealthy: 'Unhealthy', ejected: 'Ejected', warming: 'Warming up' };

// stateWords says in which state a target is, and why.
export const stateWords = (s: TargetStatus): string => words[s.state] + (s.reason === null ? '' : `: ${s.reason}`);

// inFlightWords says how many requests are in flight.
export const inFlightWords = (n: number): string => (n === 0 ? 'nothing in flight' : `${plural(n, 'request')} in flight`);

// leftWords says what is left at a target that drains: "3 requests in flight: 2 on node-1, 1 on node-2".
export function leftWords(list: TargetStatus[]): string {
  const left = inFlight(list);
  const nodes = [...new Set(list.filter((s) => s.in_flight > 0).map((s) => s.node))];
  const on = nodes.map((node) => `${count(inFlight(list.filter((s) => s.node === node)))} on ${node}`);
  return inFlightWords(left) + (left === 0 ? '' : `: ${on.join(', ')}`);
}

// worst returns the state that says most of a target: of the node on which it is out, or else of one on which it is not healthy.
export const worst = (list: TargetStatus[]): TargetStatus | undefined =>
  list.find(isOut) ?? list.find((s) => s.state !== 'healthy' || s.degraded) ?? list[0];

// A Service says how many targets of an upstream are in service: those that do not drain, and are not out on every node.
export interface Service {
  serving: number;
  words: string; // "2 of 3 in service"
  others: string[]; // what is said of the others: "1 ejected", and "1 ejected in part" of those in service
}

// serviceOf says how many targets of an upstream are in service, and why others are not.
export function serviceOf(u: Pick<Upstream, 'status' | 'targets'>): Service {
  const said = u.targets.map(({ url, drain }) => {
    const list = statusOf(u, url);
    const out = list.find(isOut);
    if (drain) return 'draining';
    return out && out.state + (list.every(isOut) ? '' : ' in part');
  });
  const serving = said.filter((s) => !s || s.endsWith(' in part')).length;
  const others = [...new Set(said.filter((s) => s !== undefined))].map((s) => `${count(said.filter((x) => x === s).length)} ${s}`);
  return { serving, words: `${count(serving)} of ${count(said.length)} in service`, others };
}
