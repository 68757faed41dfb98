import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from '@tanstack/react-router';
import { base } from './api/client';
import { parseSearch, pick, stringifySearch } from './lib/search';
import { Shell } from './shell';
import { Missing, PageError } from './ui/missing';

const root = createRootRoute({ component: Shell, notFoundComponent: Missing, errorComponent: PageError });
const at = () => root;

const overview = createRoute({
  getParentRoute: at,
  path: '/',
  validateSearch: pick('range', 'since', 'until', 'gateway_id'),
  component: lazyRouteComponent(() => import('./screens/overview/overview')),
});

const gateways = createRoute({
  getParentRoute: at,
  path: '/gateways',
  validateSearch: pick('q', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/gateways/list')),
});
const newGateway = createRoute({
  getParentRoute: at,
  path: '/gateways/new',
  component: lazyRouteComponent(() => import('./screens/gateways/create')),
});
const gateway = createRoute({
  getParentRoute: at,
  path: '/gateways/$gatewayId',
  component: lazyRouteComponent(() => import('./screens/gateways/detail')),
});
const gatewayFlow = createRoute({
  getParentRoute: () => gateway,
  path: '/',
  component: lazyRouteComponent(() => import('./screens/gateways/flow')),
});
const gatewayRoutes = createRoute({
  getParentRoute: () => gateway,
  path: '/routes',
  validateSearch: pick('q', 'method', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/gateways/routes')),
});
const gatewayRoute = createRoute({
  getParentRoute: () => gateway,
  path: '/routes/$routeId',
  component: lazyRouteComponent(() => import('./screens/gateways/route')),
});
const gatewayPush = createRoute({
  getParentRoute: () => gateway,
  path: '/push',
  component: lazyRouteComponent(() => import('./screens/gateways/push')),
});
const gatewayRevisions = createRoute({
  getParentRoute: () => gateway,
  path: '/revisions',
  validateSearch: pick('cursor', 'from', 'to'),
  component: lazyRouteComponent(() => import('./screens/gateways/revisions')),
});
const gatewayValidation = createRoute({
  getParentRoute: () => gateway,
  path: '/validation',
  component: lazyRouteComponent(() => import('./screens/gateways/validation')),
});
const gatewayRepository = createRoute({
  getParentRoute: () => gateway,
  path: '/repository',
  component: lazyRouteComponent(() => import('./screens/gateways/repository')),
});
const gatewayUpstreams = createRoute({
  getParentRoute: () => gateway,
  path: '/upstreams',
  validateSearch: pick('cursor'),
  component: lazyRouteComponent(() => import('./screens/upstreams/list')),
});
const gatewayUpstream = createRoute({
  getParentRoute: () => gateway,
  path: '/upstreams/$upstream',
  validateSearch: pick('add'),
  component: lazyRouteComponent(() => import('./screens/upstreams/detail')),
});
const editUpstream = createRoute({
  getParentRoute: () => gateway,
  path: '/upstreams/$upstream/edit',
  component: lazyRouteComponent(() => import('./screens/upstreams/edit')),
});
const gatewayTarget = createRoute({
  getParentRoute: () => gateway,
  path: '/upstreams/$upstream/target',
  validateSearch: pick('url', 'range'),
  component: lazyRouteComponent(() => import('./screens/upstreams/target')),
});
// Not below /upstreams, where it could be the name of one.
const newUpstream = createRoute({
  getParentRoute: () => gateway,
  path: '/new-upstream',
  component: lazyRouteComponent(() => import('./screens/upstreams/create')),
});
const gatewayCanaries = createRoute({
  getParentRoute: () => gateway,
  path: '/canaries',
  validateSearch: pick('cursor', 'start'),
  component: lazyRouteComponent(() => import('./screens/canaries/list')),
});
const gatewayCanary = createRoute({
  getParentRoute: () => gateway,
  path: '/canaries/$canaryId',
  component: lazyRouteComponent(() => import('./screens/canaries/detail')),
});
const gatewaySettings = createRoute({
  getParentRoute: () => gateway,
  path: '/settings',
  component: lazyRouteComponent(() => import('./screens/gateways/settings')),
});
const routes = createRoute({
  getParentRoute: at,
  path: '/routes',
  validateSearch: pick('gateway_id', 'q', 'method', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/gateways/allroutes')),
});

const certificates = createRoute({
  getParentRoute: at,
  path: '/certificates',
  validateSearch: pick('q', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/certificates/list')),
});

const keys = createRoute({
  getParentRoute: at,
  path: '/keys',
  validateSearch: pick('q', 'state', 'owner', 'plan_id', 'gateway_id', 'level', 'name', 'cursor', 'create'),
  component: lazyRouteComponent(() => import('./screens/keys/list')),
});
const key = createRoute({
  getParentRoute: at,
  path: '/keys/$keyId',
  validateSearch: pick('range'),
  component: lazyRouteComponent(() => import('./screens/keys/detail')),
});

const owners = createRoute({
  getParentRoute: at,
  path: '/owners',
  validateSearch: pick('q', 'state', 'plan_id', 'external_id', 'cursor', 'create'),
  component: lazyRouteComponent(() => import('./screens/owners/list')),
});
const owner = createRoute({
  getParentRoute: at,
  path: '/owners/$ownerId',
  component: lazyRouteComponent(() => import('./screens/owners/detail')),
});
const plans = createRoute({
  getParentRoute: at,
  path: '/plans',
  validateSearch: pick('q', 'name', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/plans/list')),
});
const newPlan = createRoute({
  getParentRoute: at,
  path: '/plans/new',
  component: lazyRouteComponent(() => import('./screens/plans/create')),
});
const plan = createRoute({
  getParentRoute: at,
  path: '/plans/$planId',
  component: lazyRouteComponent(() => import('./screens/plans/detail')),
});
const editPlan = createRoute({
  getParentRoute: at,
  path: '/plans/$planId/edit',
  component: lazyRouteComponent(() => import('./screens/plans/edit')),
});

const issuers = createRoute({
  getParentRoute: at,
  path: '/issuers',
  validateSearch: pick('q', 'name', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/issuers/list')),
});
const newIssuer = createRoute({
  getParentRoute: at,
  path: '/issuers/new',
  component: lazyRouteComponent(() => import('./screens/issuers/create')),
});
const issuer = createRoute({
  getParentRoute: at,
  path: '/issuers/$issuerId',
  validateSearch: pick('cursor'),
  component: lazyRouteComponent(() => import('./screens/issuers/detail')),
});
const editIssuer = createRoute({
  getParentRoute: at,
  path: '/issuers/$issuerId/edit',
  component: lazyRouteComponent(() => import('./screens/issuers/edit')),
});

const usageRecords = createRoute({
  getParentRoute: at,
  path: '/usage-records',
  validateSearch: pick('owner_id', 'key_id', 'gateway_id', 'meter', 'since', 'until', 'state', 'interval', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/usage/list')),
});

const requests = createRoute({
  getParentRoute: at,
  path: '/requests',
  validateSearch: pick('result', 'status', 'gateway_id', 'route_id', 'key_id', 'since', 'until', 'cursor', 'live'),
  component: lazyRouteComponent(() => import('./screens/requests/list')),
});
const request = createRoute({
  getParentRoute: at,
  path: '/requests/$requestId',
  component: lazyRouteComponent(() => import('./screens/requests/detail')),
});

const webhooks = createRoute({
  getParentRoute: at,
  path: '/webhooks',
  validateSearch: pick('cursor', 'create'),
  component: lazyRouteComponent(() => import('./screens/webhooks/list')),
});
const webhook = createRoute({
  getParentRoute: at,
  path: '/webhooks/$webhookId',
  validateSearch: pick('event_id', 'state', 'event_type', 'since', 'until', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/webhooks/detail')),
});
const deliveries = createRoute({
  getParentRoute: at,
  path: '/deliveries',
  validateSearch: pick('webhook_id', 'event_id', 'state', 'event_type', 'since', 'until', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/webhooks/deliveries')),
});
const delivery = createRoute({
  getParentRoute: at,
  path: '/deliveries/$deliveryId',
  component: lazyRouteComponent(() => import('./screens/webhooks/delivery')),
});
const events = createRoute({
  getParentRoute: at,
  path: '/events',
  validateSearch: pick('type', 'since', 'until', 'cursor'),
  component: lazyRouteComponent(() => import('./screens/webhooks/events')),
});
const catalogue = createRoute({
  getParentRoute: at,
  path: '/events/catalogue',
  component: lazyRouteComponent(() => import('./screens/webhooks/types')),
});
const event = createRoute({
  getParentRoute: at,
  path: '/events/$eventId',
  component: lazyRouteComponent(() => import('./screens/webhooks/event')),
});

const users = createRoute({
  getParentRoute: at,
  path: '/users',
  validateSearch: pick('q', 'state', 'role', 'email', 'cursor', 'invite'),
  component: lazyRouteComponent(() => import('./screens/users/list')),
});
const invitations = createRoute({
  getParentRoute: at,
  path: '/users/invitations',
  validateSearch: pick('cursor'),
  component: lazyRouteComponent(() => import('./screens/users/invitations')),
});
const user = createRoute({
  getParentRoute: at,
  path: '/users/$userId',
  component: lazyRouteComponent(() => import('./screens/users/detail')),
});
const device = createRoute({ getParentRoute: at, path: '/device', component: lazyRouteComponent(() => import('./screens/device')) });

const audit = createRoute({
  getParentRoute: at,
  path: '/audit',
  validateSearch: pick('kind', 'outcome', 'key_prefix', 'key_id', 'gateway_id', 'actor', 'since', 'until', 'cursor', 'follow', 'all'),
  component: lazyRouteComponent(() => import('./screens/audit/list')),
});
const settings = createRoute({
  getParentRoute: at,
  path: '/settings',
  validateSearch: pick('q'),
  component: lazyRouteComponent(() => import('./screens/settings/settings')),
});

const docs = createRoute({
  getParentRoute: at,
  path: '/help',
  validateSearch: pick('q'),
  component: lazyRouteComponent(() => import('./screens/docs/list')),
});
const docsPage = createRoute({
  getParentRoute: at,
  path: '/help/$page',
  component: lazyRouteComponent(() => import('./screens/docs/page')),
});

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    gateways,
    newGateway,
    gateway.addChildren([
      gatewayFlow,
      gatewayRoutes,
      gatewayRoute,
      gatewayPush,
      gatewayRevisions,
      gatewayValidation,
      gatewayRepository,
      gatewaySettings,
      gatewayUpstreams,
      gatewayUpstream,
      gatewayTarget,
      editUpstream,
      newUpstream,
      gatewayCanaries,
      gatewayCanary,
    ]),
    routes,
    certificates,
    keys,
    key,
    owners,
    owner,
    plans,
    newPlan,
    plan,
    editPlan,
    issuers,
    newIssuer,
    issuer,
    editIssuer,
    usageRecords,
    requests,
    request,
    webhooks,
    webhook,
    deliveries,
    delivery,
    events,
    catalogue,
    event,
    users,
    invitations,
    user,
    device,
    audit,
    settings,
    docs,
    docsPage,
  ]),
  basepath: base.replace(/\/$/, '') || '/',
  parseSearch,
  stringifySearch,
  scrollRestoration: true,
  defaultPreload: 'intent',
  defaultPreloadStaleTime: 0,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
