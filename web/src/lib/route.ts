import type { Schemas } from '../api/client';

export const methodNames = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];

// everything is the route that forwards all requests of callers with a key: its path matches every path, also /.
export const everything = { path: '/*', methods: methodNames };

// everythingFile has the routes of a configuration file that forwards everything.
export const everythingFile = `routes:\n  - path: ${everything.path}\n    methods: [${methodNames.join(', ')}]\n`;

// A Call is a request that a caller can make to a gateway.
export interface Call {
  method: string;
  path: string;
}

type Route = Pick<Schemas['Route'], 'path' | 'methods'>;

// callOf returns a call that a route takes. Its parameters have the value 1.
export function callOf(route: Route): Call {
  return {
    method: route.methods.includes('GET') ? 'GET' : (route.methods[0] ?? 'GET'),
    path: route.path.replace(/\/\*$/, '/').replaceAll(/\{[^{}]*\}/g, '1'),
  };
}

// firstCall returns a call of the first route for GET that has no parameters and whose path covers allows. Routes for
// one path come before routes that end in /*.
export function firstCall(routes: Route[], covers: (path: string) => boolean = () => true): Call | undefined {
  const plain = routes.filter((r) => r.methods.includes('GET') && !r.path.includes('{') && covers(callOf(r).path));
  const first = plain.find((r) => !r.path.endsWith('/*')) ?? plain[0];
  return first && callOf(first);
}
