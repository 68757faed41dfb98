import { expect, test } from 'vitest';
import { callOf, firstCall } from './route';

const route = (path: string, ...methods: string[]) => ({ path, methods });

// Guarantee: the suggested call is of the first route for GET without parameters, and not of a wildcard if there is
// another one.
test('the first call', () => {
  expect(firstCall([])).toBeUndefined();
  expect(firstCall([route('/a', 'POST'), route('/b/{id}', 'GET')])).toBeUndefined();
  expect(
    firstCall([route('/*', 'GET'), route('/a', 'POST'), route('/b/{id}', 'GET'), route('/c', 'GET', 'PUT'), route('/d', 'GET')]),
  ).toEqual({ method: 'GET', path: '/c' });
  expect(firstCall([route('/x/{id}', 'GET'), route('/files/*', 'GET')])).toEqual({ method: 'GET', path: '/files/' });
  expect(firstCall([route('/*', 'GET')])).toEqual({ method: 'GET', path: '/' });
  expect(firstCall([route('/a', 'GET'), route('/b', 'GET')], (path) => path !== '/a')).toEqual({ method: 'GET', path: '/b' });
});

// Guarantee: a call of a route has a path that the route takes.
test('a call of a route', () => {
  expect(callOf(route('/orders/{id}/lines/{line}.json', 'DELETE', 'GET'))).toEqual({ method: 'GET', path: '/orders/1/lines/1.json' });
  expect(callOf(route('/compare/{base}...{head}', 'POST'))).toEqual({ method: 'POST', path: '/compare/1...1' });
});
