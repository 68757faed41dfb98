import type { Schemas } from '../api/client';
import { count, plural } from './format';

export type Mode = Schemas['Validation']['mode'];
export const modes = ['off', 'report', 'enforce'] as const;

// modeWords says what becomes of requests that do not meet the document.
export const modeWords: Record<Mode, string> = {
  off: 'Requests are not held against the document.',
  report: 'Requests that do not meet the document are counted, and forwarded.',
  enforce: 'Requests that do not meet the document are refused.',
};

type Sums = Pick<Schemas['Validation'], 'mode' | 'requests' | 'refused' | 'keys'>;

// sumWords says how many of the requests do not meet the document.
export function sumWords({ mode, requests, refused, keys }: Sums): string {
  if (Number(requests) === 0) return 'No request of the last 24 hours was held against the document.';
  const of = `${count(refused)} of ${count(requests)} requests of the last 24 hours`;
  const by = Number(keys) > 0 ? `, with ${plural(keys, 'key')},` : '';
  return `${of}${by} ${mode === 'enforce' ? 'did not meet the document' : 'would be refused'}.`;
}

// placeWords names a part of a request.
export const placeWords = (place: Schemas['ValidationData']['place']) => place.replaceAll('_', ' ');
