import { expect, test } from 'vitest';
import type { LoggedRequest } from './explain';
import { add, emptyTail, most } from './tail';

const request = (n: number) => ({ request_id: `req_${n}` }) as LoggedRequest;
const names = (lines: ReturnType<typeof add>['lines']) => lines.map((l) => ('skipped' in l ? `${l.skipped} skipped` : l.request_id));

// Guarantee: the tail has the newest lines on top, says what is missing, and is bounded.
test('the tail of requests', () => {
  const one = add(emptyTail, [request(1), { skipped: 3 }, { skipped: 4 }, request(2)]);
  expect(names(one.lines)).toEqual(['req_2', '7 skipped', 'req_1']);
  const two = add(one, [{ skipped: 1 }, request(3)]);
  expect(names(two.lines)).toEqual(['req_3', '1 skipped', 'req_2', '7 skipped', 'req_1']);
  expect(new Set(two.lines.map((l) => ('skipped' in l ? l.id : l.request_id))).size).toBe(5);
  const full = add(two, Array.from({ length: most }, (_, n) => request(100 + n)));
  expect(full.lines).toHaveLength(most);
  expect(names(full.lines)[0]).toBe(`req_${100 + most - 1}`);
});
