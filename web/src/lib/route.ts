export const methodNames = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];

// everything is the route that forwards all requests of callers with a key: its path matches every path, also /.
export const everything = { path: '/*', methods: methodNames };

// everythingFile has the routes of a configuration file that forwards everything.
export const everythingFile = `routes:\n  - path: ${everything.path}\n    methods: [${methodNames.join(', ')}]\n`;
